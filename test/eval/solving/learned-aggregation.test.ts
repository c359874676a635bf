// An aggregation that is learned: better than a fixed one where it can be, and never from the labels of its own problem.
import { expect, it } from 'vitest';
import { aggregated } from '../../../src/eval/solving/aggregation.js';
import { learnedAggregation } from '../../../src/eval/solving/learned-aggregation.js';
import { random } from '../../ops/numbers.js';

const PROBLEMS = 40;
const EACH = 10;

/** Right where the last step scores high, however low the others do. */
function solutions() {
  const noise = random(3 * PROBLEMS * EACH, 1);
  return Array.from({ length: PROBLEMS * EACH }, (_, i) => {
    const scores = [0, 1, 2].map((j) => ((noise[3 * i + j] as number) + 1) / 2);
    return { problem: Math.floor(i / EACH), right: (scores[2] as number) > 0.6, scores };
  });
}

/** Of pairs of a right and a wrong solution, the share in which the right one scores higher. */
function ranked(all: ReturnType<typeof solutions>, scores: readonly (number | null)[]): number {
  const of = (right: boolean) =>
    all.flatMap((solution, i) => (solution.right === right ? [scores[i] as number] : []));
  const [above, below] = [of(true), of(false)];
  const won = above.flatMap((a) => below.map((b): number => (a > b ? 1 : 0)));
  return won.reduce((sum, each) => sum + each) / won.length;
}

it('finds which steps tell, where the least score does not', () => {
  const all = solutions();
  const learned = learnedAggregation(
    all,
    all.map(({ scores }) => scores),
  );
  const least = all.map(({ scores }) => aggregated(scores, 'min'));
  expect(ranked(all, learned)).toBeGreaterThan(0.97);
  expect(ranked(all, least)).toBeLessThan(0.85);
});

it('reads no label of the problem that it scores', () => {
  const all = solutions();
  const scores = all.map((solution) => solution.scores);
  const learned = learnedAggregation(all, scores);
  const turned = all.map((each) => (each.problem === 7 ? { ...each, right: !each.right } : each));
  const other = learnedAggregation(turned, scores);
  const changed = learned.map((score, i) => score !== other[i]);
  expect(changed.filter((_, i) => all[i]?.problem === 7)).toEqual(new Array(EACH).fill(false));
  expect(changed).toContain(true);
});

it('gives no score without one, and finite ones where all solutions are right', () => {
  const all = Array.from({ length: 20 }, (_, problem) => ({ problem, right: true }));
  const scores = all.map(({ problem }) => (problem === 3 ? [] : [0, problem / 20]));
  const learned = learnedAggregation(all, scores);
  expect(learned[3]).toBeNull();
  expect(learned.filter((score) => score !== null).every(Number.isFinite)).toBe(true);
  expect(learned.filter((score) => score !== null)).toHaveLength(19);
});
