/** Attempts at a problem, right or wrong, each with a worked solution after it: what a base reads that is to check solutions later. */
import type { PhiloxStream } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import type { WordProblem } from './problem.js';
import { rightSolution } from './solution.js';

/**
 * The first lines of an attempt, a question mark, and as many lines of the worked solution on one line. Nothing says which line of
 * the attempt is wrong.
 *
 * @param lines the attempt, right or wrong
 */
export function workedAfterAttempt(
  problem: WordProblem,
  lines: readonly string[],
  draw: PhiloxStream,
): StepRecord {
  const shown = 1 + draw.below(lines.length);
  return {
    problem: [problem.problem, ...lines.slice(0, shown), '?'].join('\n'),
    steps: [{ text: rightSolution(problem).slice(0, shown).join(', '), label: 1, kind: 'normal' }],
  };
}
