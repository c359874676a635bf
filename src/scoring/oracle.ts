// The oracle of generated problems: it knows the computations of their plan, and needs no model.
import type { Problem } from '../data/benchmarks/problem.js';
import { judgeSolution } from '../data/problems/oracle.js';
import type { WordProblem } from '../data/problems/problem.js';
import { judgeTurns } from '../data/problems/turns.js';
import { badOption } from '../files/data-error.js';
import { typedCommand } from '../native/typed-command.js';
import { scorer } from './scorer.js';

/** 1 for each right step or turn and 0 for each wrong one of word problems that hold their plan (`Problem.generated`). */
export const oracleScorer = scorer({
  name: 'oracle',
  readsTurns: true,
  async score(solutions) {
    return solutions.map(({ of, steps, place, turns }, i) => {
      const problem = generatedProblem(of ?? {}, place?.problem ?? i);
      const lines = turns ? judgeTurns(problem, turns.steps) : judgeSolution(problem, steps).lines;
      return { scores: lines.map(({ right }) => (right ? 1 : 0)) };
    });
  },
});

/**
 * The plan of a problem.
 *
 * @param index from 0, for the error
 * @throws DataError where it has none
 */
export function generatedProblem({ generated }: Pick<Problem, 'generated'>, index: number): WordProblem {
  if (generated) return generated;
  throw badOption(
    `the oracle judges generated problems alone, and problem ${index + 1} has no plan; make them with: ${typedCommand('data problems')}`,
  );
}
