// Losses and gradient norms of TRL's own trainers on the same tiny model and batch (test/golden/trl.json, make_trl.py).
import { readFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { inMemory } from '../../../../src/data/dataset.js';
import { runBatch } from '../../../../src/methods/offline/answers/batch.js';
import type { OfflineObjective } from '../../../../src/methods/offline/answers/objective.js';
import { heldOutPlan } from '../../../../src/methods/offline/answers/plan.js';
import { dpoObjective as dpo } from '../../../../src/methods/offline/dpo.js';
import { ktoObjective as kto } from '../../../../src/methods/offline/kto.js';
import { orpoObjective as orpo } from '../../../../src/methods/offline/orpo.js';
import { simpoObjective as simpo } from '../../../../src/methods/offline/simpo.js';
import { likelihood } from '../../../../src/methods/offline/solution-sft.js';
import { loadTrainableDecoder } from '../../../../src/models/load.js';
import type { OfflineItem } from '../../../../src/scoring/implicit/items.js';
import type { SpanSums } from '../../../../src/scoring/implicit/sums.js';
import { goldenDirectory } from '../../../models/golden.js';
import { openTest } from '../../../ops/devices.js';

interface Expected {
  readonly loss: number;
  readonly grad_norm: number;
}

const golden = JSON.parse(readFileSync(new URL('../../../golden/trl.json', import.meta.url), 'utf8')) as {
  pairs: {
    prompt: number[];
    chosen: number[];
    rejected: number[];
    ref_chosen: number;
    ref_rejected: number;
  }[];
  answers: { prompt: number[]; completion: number[]; label: boolean; ref: number; ref_mismatched: number }[];
  dpo: (Parameters<typeof dpo>[0] & Expected)[];
  kto: (Parameters<typeof kto>[0] & Expected)[];
  sft: Expected;
  simpo: { beta: number; simpo_gamma: number } & Expected;
  /** `trl_loss` is TRL's own, whose likelihood is of the prompt too. */
  orpo: ({ beta: number; trl_loss: number } & Expected)[];
};

const device = openTest();
afterAll(() => device.dispose());

const answer = (ids: readonly number[], label: 1 | 0) => ({ ids, from: 0, steps: [], label });
const pairs = golden.pairs.map(
  ({ prompt, chosen, rejected }, problem): OfflineItem => ({
    problem,
    prompt,
    answers: [answer(chosen, 1), answer(rejected, 0)],
  }),
);
// TRL puts the answer before after each prompt; in the order of falling numbers, that is the next problem.
const answers = golden.answers.map(
  ({ prompt, completion, label }, i): OfflineItem => ({
    problem: -i,
    prompt,
    answers: [answer(completion, label ? 1 : 0)],
  }),
);
const pairReferences = golden.pairs.map(({ ref_chosen, ref_rejected }) => [[ref_chosen], [ref_rejected]]);
const answerReferences = [
  ...golden.answers.map(({ ref }) => [[ref]]),
  ...golden.answers.map(({ ref_mismatched }) => [[ref_mismatched]]),
];

async function measured(
  objective: OfflineObjective,
  items: readonly OfflineItem[],
  references: readonly (readonly SpanSums[])[],
  microBatchTokens = 1000,
): Promise<Expected> {
  const { decoder, parameters } = loadTrainableDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  const plan = heldOutPlan(inMemory(items), { pairs: objective.needsMismatched, maxLength: 64 });
  const context = { decoder, role: {}, objective, plan, references, microBatchTokens };
  const { metrics } = await runBatch(context, 0, { parameters, dropout: { seed: 0, step: 0 } });
  const grads = await parameters.grads.readFloats();
  parameters.dispose();
  decoder.dispose();
  return { loss: metrics.loss, grad_norm: Math.hypot(...grads) };
}

function expectSame(found: Expected, { loss, grad_norm }: Expected) {
  expect(found.loss).toBeCloseTo(loss, 4);
  expect(Math.abs(found.grad_norm / grad_norm - 1)).toBeLessThan(2e-4);
}

it.each(golden.dpo)(
  'DPO, $loss_type, smoothing $label_smoothing',
  async ({ loss, grad_norm, ...settings }) => {
    for (const tokens of [1000, 12])
      expectSame(await measured(dpo(settings), pairs, pairReferences, tokens), { loss, grad_norm });
  },
);

it.each(golden.kto)('KTO, $loss_type, beta $beta', async ({ loss, grad_norm, ...settings }) => {
  for (const tokens of [1000, 12])
    expectSame(await measured(kto(settings), answers, answerReferences, tokens), { loss, grad_norm });
});

it('SFT', async () => expectSame(await measured(likelihood(), answers, []), golden.sft));

it('SimPO', async () => {
  const { beta, simpo_gamma, ...expected } = golden.simpo;
  expectSame(await measured(simpo({ beta, simpo_gamma, label_smoothing: 0 }), pairs, []), expected);
});

it.each(golden.orpo)('ORPO, beta $beta', async ({ beta, trl_loss, ...expected }) => {
  for (const tokens of [1000, 12]) expectSame(await measured(orpo({ beta }), pairs, [], tokens), expected);
  // TRL's whole loss: the mean over the tokens of all prompts and chosen answers in place of the answers' means.
  const all = golden.pairs.map(
    ({ prompt: [first, ...prompt], chosen }, problem): OfflineItem => ({
      problem,
      prompt: [first as number],
      answers: [answer([...prompt, ...chosen], 1)],
    }),
  );
  const chosen = (rows: readonly OfflineItem[]) => measured(likelihood(), rows, []);
  const means = await Promise.all(
    pairs.map(async (pair) => (await chosen([{ ...pair, answers: pair.answers.slice(0, 1) }])).loss),
  );
  const ofAnswers = means.reduce((sum, loss) => sum + loss, 0) / means.length;
  expect(expected.loss - ofAnswers + (await chosen(all)).loss).toBeCloseTo(trl_loss, 4);
});
