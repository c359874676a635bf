/** The oracle of generated problems as a reward: what a perfect judge of steps is worth. */
import { judgeSolution } from '../data/problems/oracle.js';
import { type Aggregation, aggregated } from '../eval/solving/aggregation.js';
import { generatedProblem } from '../eval/solving/oracle.js';
import type { SolutionReward } from './reward.js';

/**
 * 1 for each right step and 0 for each wrong one.
 *
 * @throws DataError from `score` for a problem that was not generated
 */
export function oracleReward(aggregation: Aggregation): SolutionReward {
  return {
    name: 'oracle',
    score: async (solutions) =>
      solutions.map(({ problem, steps }, i) => {
        const { lines } = judgeSolution(generatedProblem(problem, i), steps);
        // No step at all is a wrong one.
        const right = lines.length > 0 ? lines.map((line) => (line.right ? 1 : 0)) : [0];
        return { value: aggregated(right, aggregation) as number, steps: right };
      }),
  };
}
