// The judge of problems with worked solutions: exact arithmetic, and no model.
import type { Problem } from '../data/benchmarks/problem.js';
import { stepsByReference } from '../data/equations/by-reference.js';
import type { ReferenceSolution } from '../data/equations/first-difference.js';
import { badOption } from '../files/data-error.js';
import { scorer } from './scorer.js';

/**
 * Scores steps of problems with a worked solution: 1 for each right step, 0 for the first wrong one and null behind it.
 */
export const referenceScorer = scorer({
  name: 'reference',
  async score(solutions) {
    return solutions.map(({ of, steps, place }, i) => ({
      scores: stepsByReference(workedProblem(of ?? {}, place?.problem ?? i), steps),
    }));
  },
});

/** @throws DataError where a problem has no worked solution */
function workedProblem({ problem, solution, answer }: Partial<Problem>, index: number): ReferenceSolution {
  if (problem !== undefined && solution !== undefined && answer !== undefined)
    return { problem, solution, answer };
  throw badOption(
    `the judge "reference" compares steps with worked solutions, and problem ${index + 1} has none; ` +
      'name data that has them, such as GSM8K',
  );
}
