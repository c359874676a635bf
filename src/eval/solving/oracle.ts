// The oracle of generated problems as a judge of steps: it knows what has to be computed, and needs no model.
import type { Problem } from '../../data/benchmarks/problem.js';
import { judgeSolution } from '../../data/problems/oracle.js';
import type { WordProblem } from '../../data/problems/problem.js';
import { DataError } from '../../files/data-error.js';
import type { SolutionScorer, StepJudge } from './judging.js';

/** Judges solutions of word problems that hold their plan (`Problem.generated`) exactly. */
export const oracleJudge: StepJudge = {
  name: 'oracle',
  async judge(solutions) {
    return solutions.map(({ of, steps, problem }) => {
      const { lines } = judgeSolution(generatedProblem(of, problem), steps);
      return lines.map(({ right }) => (right ? 1 : 0));
    });
  },
};

/** The same as a reward model without mistakes. */
export const oracleScorer: SolutionScorer = {
  name: 'oracle',
  async score(solutions) {
    const verdicts = await oracleJudge.judge(solutions);
    return verdicts.map((steps) => steps.map((right) => right ?? 0));
  },
};

/**
 * The plan of a problem.
 *
 * @param index from 0, for the error
 * @throws DataError where it has none
 */
export function generatedProblem({ generated }: Problem, index: number): WordProblem {
  if (generated) return generated;
  throw new DataError(
    'option',
    `the oracle judges generated problems alone, and problem ${index + 1} has no plan; make them with: steptrain data problems`,
  );
}
