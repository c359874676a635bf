// Problems of several groups by weight, in batches that depend on the seed alone.
import { expect, it } from 'vitest';
import { mixedBatches, mixWarnings } from '../../../src/train/solutions/mix.js';

const groups = [
  ...Array.from({ length: 30 }, () => ({ group: 'gsm8k' })),
  ...Array.from({ length: 300 }, () => ({ group: 'math' })),
  undefined,
  ...Array.from({ length: 70 }, () => ({ group: 'other' })),
];
const OPTIONS = { batchSize: 10, epochs: 2, seed: 3, weights: {} };

const batchesOf = (...given: Parameters<typeof mixedBatches>) => [...mixedBatches(...given).batches];

it('without weights goes through all problems once an epoch', () => {
  const batches = batchesOf(groups, OPTIONS);
  expect(batches.length).toBe(80);
  const counts = new Map<number, number>();
  for (const item of batches.flat()) counts.set(item, (counts.get(item) ?? 0) + 1);
  expect([counts.size, new Set(counts.values()).size, counts.has(330)]).toEqual([400, 1, false]);
});

it('draws groups by weight, and the problems of a group in turn', () => {
  const batches = batchesOf(groups, { ...OPTIONS, weights: { gsm8k: 3, math: 1 } });
  expect(batches.length).toBe(80);
  const items = batches.flat();
  expect(batches.every((batch) => batch.length === 10 && new Set(batch).size === 10)).toBe(true);
  const share = items.filter((item) => item < 30).length / items.length;
  expect(share).toBeGreaterThan(0.65);
  expect(share).toBeLessThan(0.8);
  const counts = Array.from({ length: 30 }, (_, i) => items.filter((item) => item === i).length);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(3);
  expect(items.some((item) => item > 330)).toBe(false);
  expect(batchesOf(groups, { ...OPTIONS, weights: { gsm8k: 3, math: 1 } })).toEqual(batches);
});

it('refuses a group that is not there, and takes a group smaller than a batch as it is', () => {
  expect(() => mixedBatches(groups, { ...OPTIONS, weights: { mth: 1 } })).toThrow(
    'rollout.mix names the group "mth", which no training problem belongs to; there are gsm8k, math, other',
  );
  const batches = batchesOf(groups.slice(27, 30), { ...OPTIONS, weights: { gsm8k: 1 } });
  expect(batches.map((batch) => batch.length)).toEqual([3, 3]);
  expect(mixWarnings(groups.slice(27, 30), { batchSize: 10, weights: { gsm8k: 1 } })).toEqual([
    'rollout.mix asks "gsm8k" for 10 of the 10 problems of a rollout batch, in which none stands twice, and it has 3: batches have at most 3 problems',
  ]);
});

it('says where a group is smaller than its share of a batch, so that others come in its place', () => {
  const few = groups.slice(27);
  const mix = { batchSize: 10, weights: { gsm8k: 2, math: 1 } };
  expect(mixWarnings(few, mix)).toEqual([
    'rollout.mix asks "gsm8k" for 6.7 of the 10 problems of a rollout batch, in which none stands twice, and it has 3: problems of other groups come in their place',
  ]);
  const [first] = batchesOf(few, { ...OPTIONS, ...mix });
  expect(first?.filter((item) => item < 3)).toHaveLength(3);
  expect(mixWarnings(groups, mix)).toEqual([]);
  expect(mixWarnings(few, { batchSize: 10, weights: {} })).toEqual([]);
});
