// Log-probs of the reference before training.
import { afterAll, expect, it } from 'vitest';
import { inMemory } from '../../../../src/data/dataset.js';
import { referenceStage } from '../../../../src/methods/offline/answers/reference.js';
import { loadDecoder } from '../../../../src/models/load.js';
import type { OfflineItem } from '../../../../src/scoring/implicit/items.js';
import { goldenDirectory } from '../../../models/golden.js';
import { openTest } from '../../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

it('takes as many steps whatever fits into memory at once, with the same sums', async () => {
  const decoder = await loadDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  const items = Array.from({ length: 130 }, (_, problem): OfflineItem => {
    const ids = [1 + (problem % 7), 2, 3];
    const steps = [{ begin: 0, end: 2, label: 1 as const }];
    return { problem, prompt: [5, 6], answers: [{ ids, from: 0, steps, label: 1 }] };
  });
  const run = async (microBatchTokens: number) => {
    const settings = { save_steps: 0, save_total_limit: 1 };
    const stage = referenceStage({
      name: 'reference',
      decoder,
      role: {},
      items: inMemory(items),
      microBatchTokens,
      settings,
    });
    const open = stage.open();
    await open.begin();
    const outcomes = [];
    for (let step = 0; step < stage.steps; step++)
      outcomes.push(await open.step(step, new AbortController().signal));
    open.dispose();
    return outcomes.map((outcome) => outcome!.rows);
  };
  const rows = await run(8);
  expect(rows.map(({ length }) => length)).toEqual([128, 2]);
  expect(await run(4096)).toEqual(rows);
  decoder.dispose();
});
