// Step-APO beside its formula in float64, and beside Step-DPO.
import { afterAll, expect, it } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { runBatch } from '../../../src/methods/offline/answers/batch.js';
import type { OfflineObjective } from '../../../src/methods/offline/answers/objective.js';
import { heldOutPlan } from '../../../src/methods/offline/answers/plan.js';
import { dpoObjective } from '../../../src/methods/offline/dpo.js';
import { stepApoObjective } from '../../../src/methods/offline/step-apo.js';
import { loadTrainableDecoder } from '../../../src/models/load.js';
import type { OfflineItem } from '../../../src/scoring/implicit/items.js';
import { offlineSequence } from '../../../src/scoring/implicit/items.js';
import { readSums } from '../../../src/scoring/implicit/sums.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
const { decoder, parameters } = loadTrainableDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
afterAll(() => {
  parameters.dispose();
  decoder.dispose();
  device.dispose();
});

/** A step after one that both share. */
const step = (ids: readonly number[], label: 1 | 0, score?: number) => ({
  ids: [5, 6, ...ids],
  from: 2,
  steps: [{ begin: 2, end: 2 + ids.length, label, score }],
  label,
});
const REFERENCES = [
  [[-7], [-6]],
  [[-9], [-12]],
];

async function measured(objective: OfflineObjective, items: readonly OfflineItem[]) {
  const plan = heldOutPlan(inMemory(items), { pairs: false, maxLength: 64 });
  const context = { decoder, role: {}, objective, plan, references: REFERENCES, microBatchTokens: 16 };
  const { metrics } = await runBatch(context, 0, { parameters, dropout: { seed: 1, step: 0 } });
  return { loss: metrics.loss, gradients: await parameters.grads.readFloats() };
}

const pairs = (scores: readonly (readonly [number?, number?])[]): OfflineItem[] => [
  { problem: 1, prompt: [1, 2], answers: [step([7, 8], 1, scores[0]?.[0]), step([9], 0, scores[0]?.[1])] },
  { problem: 2, prompt: [3], answers: [step([4, 3, 2], 1, scores[1]?.[0]), step([8, 1], 0, scores[1]?.[1])] },
];

it('a step has to lead by the difference of the scores', async () => {
  const [beta, advantage_weight] = [0.4, 1.5];
  const scores = [
    [0.9, 0.2],
    [0.6, 0.5],
  ] as const;
  const items = pairs(scores);
  const sums = await readSums(
    decoder,
    {},
    items.map((item, i) => offlineSequence(item, i)),
  );
  const losses = items.map((_, i) => {
    const ratio = (side: 0 | 1) =>
      (sums[2 * i + side]?.[0] as number) - (REFERENCES[i]?.[side]?.[0] as number);
    const [chosen, rejected] = scores[i] as readonly [number, number];
    return Math.log1p(Math.exp(-(beta * (ratio(0) - ratio(1)) - advantage_weight * (chosen - rejected))));
  });
  const { loss } = await measured(stepApoObjective({ beta, advantage_weight }), items);
  expect(loss).toBeCloseTo(((losses[0] as number) + (losses[1] as number)) / 2, 5);
});

it('is Step-DPO where the scores are equal or count nothing, and goes by labels without scores', async () => {
  const plain = await measured(
    dpoObjective({ beta: 0.4, loss_type: 'sigmoid', label_smoothing: 0 }),
    pairs([]),
  );
  const equal = pairs([
    [0.5, 0.5],
    [0, 0],
  ]);
  const found = await measured(stepApoObjective({ beta: 0.4, advantage_weight: 1 }), equal);
  expect(found.loss).toBeCloseTo(plain.loss, 6);
  const weightless = await measured(stepApoObjective({ beta: 0.4, advantage_weight: 0 }), pairs([[1, 0]]));
  expect(weightless.gradients).toEqual(plain.gradients);
  const labelled = await measured(stepApoObjective({ beta: 0.4, advantage_weight: 1 }), pairs([]));
  const scored = pairs([
    [1, 0],
    [1, 0],
  ]);
  expect(labelled.loss).toBe(
    (await measured(stepApoObjective({ beta: 0.4, advantage_weight: 1 }), scored)).loss,
  );
  expect(labelled.loss).toBeGreaterThan(plain.loss);
});
