// Whether a run may learn from a reward model, by the file beside its weights.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { rewardQuality } from '../../src/eval/reward-quality.js';
import { checkRewardModel, REWARD_QUALITY, rewardWeights } from '../../src/rewards/gate.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const ADAPTER = new URL('../../assets/word-problems-judge', import.meta.url).pathname;

async function adapterWith(
  lead: number,
  { weights, ordered = false }: { weights?: string; ordered?: boolean } = {},
) {
  const folder = join(temporaryDirectory(), 'adapter');
  cpSync(ADAPTER, folder, { recursive: true });
  const { hash } = await rewardWeights(folder);
  const scored = Array.from({ length: 40 }, (_, i) => {
    // In every other pair the wrong step comes first, so that its place says nothing.
    const inOrder = <T>(pair: readonly [T, T]) => (ordered || i % 4 < 2 ? pair : [pair[1], pair[0]]);
    const step = (label: 0 | 1) => ({ text: 'a', label, kind: 'normal' as const });
    return {
      record: { problem: `p${i}`, steps: inOrder([step(1), step(0)]) },
      scores: inOrder([(i % 2) + lead, 0.5]),
    };
  });
  const options = { scorer: 'verdict', data: [], unit: 'steps', seconds: 1, tokens: 1 } as const;
  const quality = rewardQuality(scored, { ...options, weights: weights ?? hash });
  writeFileSync(join(folder, REWARD_QUALITY), JSON.stringify(quality));
  return folder;
}

it('lets a strong one pass in silence, and refuses a weak one unless it is accepted', async () => {
  expect(await checkRewardModel(await adapterWith(1))).toBeUndefined();
  const weak = await adapterWith(0);
  await expect(checkRewardModel(weak)).rejects.toThrow(
    /is weak: AUC within a problem 50\.0 \(95 % interval .*\) on 40 problems is not above 55\.0, .*--accept-weak-reward/,
  );
  expect(await checkRewardModel(weak, { accept: true })).toContain('is weak');
});

it('warns of a strong one that is not shown to know more than the place of a step', async () => {
  const known = await checkRewardModel(await adapterWith(1, { ordered: true }));
  expect(known).toMatch(/not shown to know more than how early a step stands, which alone has an AUC of 100/);
});

it('says what is not known, and learns nevertheless', async () => {
  const unknown = join(temporaryDirectory(), 'adapter');
  cpSync(ADAPTER, unknown, { recursive: true });
  expect(await checkRewardModel(unknown)).toMatch(
    /is not known; measure it with: npx steptrain eval reward-model/,
  );
  expect(await checkRewardModel(await adapterWith(0, { weights: 'of another' }))).toContain(
    'is of other weights',
  );
});

it('knows weights in shards, and a GGUF file', async () => {
  const folder = temporaryDirectory();
  writeFileSync(join(folder, 'config.json'), readFileSync(join(goldenDirectory('qwen2'), 'config.json')));
  const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
  for (const name of shards) writeFileSync(join(folder, name), name);
  const { hash } = await rewardWeights(folder);
  expect(hash).toMatch(/^\d+ bytes, \w+; \d+ bytes, \w+$/);
  writeFileSync(join(folder, shards[1] as string), 'other weights');
  expect((await rewardWeights(folder)).hash).not.toBe(hash);
});

it('refuses a file that is another', async () => {
  const folder = await adapterWith(1);
  const path = join(folder, REWARD_QUALITY);
  writeFileSync(path, readFileSync(path, 'utf8').replace('within_problem', 'within'));
  await expect(checkRewardModel(folder)).rejects.toThrow(/is not as steptrain eval reward-model writes it/);
});
