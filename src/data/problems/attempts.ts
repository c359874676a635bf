/**
 * Attempts at a problem, right or wrong, each followed by a worked solution: text for a base that is to check solutions
 * later.
 */
import type { PhiloxStream } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import type { WordProblem } from './problem.js';
import { resultOf } from './reasons.js';
import { rightSolution } from './solution.js';

/** Share of the worked solutions that repeat the attempt's last result. */
const RESTATED = 0.6;

/**
 * The first lines of an attempt, a question mark, and as many lines of the worked solution on one line, mostly with the attempt's
 * last result after them. Nothing says which line of the attempt is wrong.
 *
 * @param lines the attempt, right or wrong
 */
export function workedAfterAttempt(
  problem: WordProblem,
  lines: readonly string[],
  draw: PhiloxStream,
): StepRecord {
  const shown = 1 + draw.below(lines.length);
  const worked = rightSolution(problem).slice(0, shown).join(', ');
  const restated = draw.uniform() < RESTATED ? `; ${resultOf(lines[shown - 1] as string)}` : '';
  return {
    problem: [problem.problem, ...lines.slice(0, shown), '?'].join('\n'),
    steps: [{ text: worked + restated, label: 1, kind: 'normal' }],
  };
}
