// What a score stands for, by its scale.
import { expect, it } from 'vitest';
import { numbersOf, probabilityOf, scorer, verdictsOf } from '../../src/scoring/scorer.js';

const score = async () => [{ scores: [0, 2, null, -1] }];
const solution = { problem: 'p', steps: ['a', 'b', 'c', 'd'] };

it.each([
  ['probability', 0.5, [0, 1, null, 0]],
  ['log_odds', 0, [1, 1, null, 0]],
  ['reward', 0, [1, 1, null, 0]],
] as const)('of scale %s a step is right from %d on', async (scale, threshold, verdicts) => {
  const own = scorer({ name: 'own', scale, score });
  expect(own.threshold).toBe(threshold);
  expect(await verdictsOf(own)([solution])).toEqual([verdicts]);
});

it('has a probability unless it is a reward without bounds', () => {
  expect(probabilityOf({ scale: 'probability' }, 0.25)).toBe(0.25);
  expect(probabilityOf({ scale: 'log_odds' }, Math.log(3))).toBeCloseTo(0.75, 12);
  expect(probabilityOf({ scale: 'reward' }, 3)).toBeNull();
});

it('counts steps behind the last one that was read as wrong where scores are probabilities', () => {
  const read = { scores: [0.9, null, 0.8, null] };
  expect(numbersOf({ unit: 'step', scale: 'probability' }, read)).toEqual([0.9, 0.8, 0]);
  expect(numbersOf({ unit: 'step', scale: 'reward' }, read)).toEqual([0.9, 0.8]);
  expect(numbersOf({ unit: 'outcome', scale: 'reward' }, { scores: [null], outcome: 3 })).toEqual([3]);
  expect(numbersOf({ unit: 'outcome', scale: 'reward' }, { scores: [null], outcome: null })).toEqual([]);
});

it('is no judge where it scores whole solutions', () => {
  expect(() => verdictsOf(scorer({ name: 'orm', unit: 'outcome', score }))).toThrow(
    'orm scores whole solutions and judges no steps',
  );
});

it.each([
  [{ scores: [0.5, Number.NaN] }, 'step 2 of a solution'],
  [{ scores: [null, null], outcome: Number.POSITIVE_INFINITY }, 'a solution'],
])('is refused where it gives something that is not a number', async (found, place) => {
  const broken = scorer({ name: 'prm', score: async () => [found] });
  await expect(broken.score([{ problem: 'p', steps: ['a', 'b'] }])).rejects.toThrow(
    `prm gives something that is not a number for ${place} of the problem "p": its weights are damaged`,
  );
});
