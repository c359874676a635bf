// Votes, choices and their means over subsets, against enumeration of every ordered draw.
import { describe, expect, it } from 'vitest';
import { allSubsets, binomial, meanOverSubsets } from '../../../src/eval/solving/subsets.js';
import { ballots, bestRight, votedRight } from '../../../src/eval/solving/votes.js';

/** Every way to draw k of the indices one after another. */
function* draws(n: number, k: number, taken: readonly number[] = []): Generator<readonly number[]> {
  if (taken.length === k) yield taken;
  else for (let i = 0; i < n; i++) if (!taken.includes(i)) yield* draws(n, k, [...taken, i]);
}

/** The rule itself: the first seen of the answers with the most votes. */
function majorityOf(answers: readonly (string | null)[]): string | undefined {
  const votes = new Map<string, number>();
  for (const answer of answers) if (answer !== null) votes.set(answer, (votes.get(answer) ?? 0) + 1);
  const most = Math.max(...votes.values());
  return [...votes.keys()].find((answer) => votes.get(answer) === most);
}

const samplesOf = (answers: readonly (string | null)[], expected: string) =>
  answers.map((answer) => ({ answer, right: answer === expected }));
const all = (n: number) => Array.from({ length: n }, (_, i) => i);

describe('majority', () => {
  it.each([
    [['a', 'a', 'b', null, 'b', 'c'], 'a'],
    [['b', 'a', 'b', 'c', 'c', 'b'], 'c'],
    [[null, null, 'a', 'b'], 'a'],
    [[null, null, null], 'a'],
    [['a', 'a', 'a', 'a', 'a'], 'a'],
  ])('of %j, where %s is right, is the mean of the rule over every ordered draw', (answers, expected) => {
    const cast = ballots(samplesOf(answers, expected));
    for (let k = 1; k <= answers.length; k++) {
      const outcomes = [...draws(answers.length, k)].map((draw): number =>
        majorityOf(draw.map((i) => answers[i] as string | null)) === expected ? 1 : 0,
      );
      const mean = outcomes.reduce((sum, right) => sum + right, 0) / outcomes.length;
      const found = meanOverSubsets({ n: answers.length, k, problem: 0 }, (subset) =>
        votedRight(cast, subset),
      );
      expect(found, `k=${k}`).toBeCloseTo(mean, 12);
    }
  });

  it('counts answers that mean the same together', () => {
    const cast = ballots([
      { answer: '\\frac{1}{2}', right: true },
      { answer: '3', right: false },
      { answer: '0.5', right: true },
      { answer: '3.0', right: false },
      { answer: '50\\%', right: true },
      { answer: null, right: false },
    ]);
    expect(cast.map(({ answer }) => answer)).toEqual([0, 1, 0, 1, 0, -1]);
    expect(votedRight(cast, all(6))).toBe(1);
    expect(votedRight(cast, [0, 1, 2, 3])).toBe(0.5);
    expect(votedRight(cast, [5])).toBe(0);
  });

  it('counts what says of a quantity what it is with that value, in either order', () => {
    const [sum, value] = [
      { answer: 'm+n = 293', right: true },
      { answer: '293', right: true },
    ];
    for (const votes of [
      [sum, value],
      [value, sum],
    ])
      expect(ballots([...votes, { answer: '294', right: false }]).map(({ answer }) => answer)).toEqual([
        0, 0, 1,
      ]);
  });

  it('goes by the sums of the scores where there are any', () => {
    const cast = ballots(samplesOf(['a', 'a', 'b', null], 'b'));
    expect(votedRight(cast, all(4), [0.2, 0.3, 0.6, 9])).toBe(1);
    expect(votedRight(cast, all(4), [0.25, 0.5, 0.75, 9])).toBe(0.5);
    expect(votedRight(cast, all(4), [0.4, 0.4, 0.6, 9])).toBe(0);
  });
});

describe('the best of several', () => {
  const samples = [
    { answer: 'a', right: false, score: 0.9 },
    { answer: 'b', right: true, score: 0.9 },
    { answer: null, right: false, score: 1 },
    { answer: 'b', right: true, score: 0.1 },
    { answer: 'c', right: false, score: null },
  ];

  it('is the highest score with an answer; ties share, and what could not be read comes last', () => {
    expect(bestRight(samples, all(5))).toBe(0.5);
    expect(bestRight(samples, [1, 2, 3])).toBe(1);
    expect(bestRight(samples, [3, 4])).toBe(1);
    expect(bestRight(samples, [4])).toBe(0);
    expect(bestRight(samples, [2])).toBe(0);
  });
});

describe('subsets', () => {
  it.each([
    [1, 1],
    [5, 1],
    [5, 3],
    [6, 6],
    [7, 4],
  ])('of %d samples with %d members are each there once', (n, k) => {
    const found = [...allSubsets(n, k)].map((subset) => subset.join());
    expect(found).toHaveLength(binomial(n, k));
    expect(new Set(found).size).toBe(found.length);
    const increasing = (list: readonly number[]) => list.every((i, at) => at === 0 || i > list[at - 1]!);
    expect([...allSubsets(n, k)].every((subset) => increasing(subset) && subset.at(-1)! < n)).toBe(true);
  });

  it('drawn at random have each sample equally often', () => {
    for (const i of [0, 1, 8, 9, 10, 20, 28, 29]) {
      const share = meanOverSubsets({ n: 30, k: 10, problem: 3 }, (subset) => (subset.includes(i) ? 1 : 0));
      // A third, with a deviation of √(2/9 / 2000) = 0.011.
      expect(Math.abs(share - 1 / 3), `sample ${i}`).toBeLessThan(0.04);
    }
  });

  it('are drawn at random where there are too many, the same every time', () => {
    const mean = (problem: number) =>
      meanOverSubsets({ n: 30, k: 10, problem, most: 500 }, (subset) => {
        expect(new Set(subset).size).toBe(10);
        return subset.filter((i) => i < 3).length;
      });
    expect(mean(0)).toBeCloseTo(1, 0);
    expect(mean(0)).toBe(mean(0));
    expect(mean(0)).not.toBe(mean(1));
  });
});
