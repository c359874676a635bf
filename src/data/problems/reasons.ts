/** Exact reasons for verdicts on the lines of a word problem. */
import { ANSWER, type JudgedLine } from './oracle.js';
import type { WordProblem } from './problem.js';
import { rightSolution } from './solution.js';

/**
 * The reason for a verdict: the right lines up to the judged one, computed anew, and the judged line next to the last
 * of them: `Tom: 12 + 7 = 19; Tom: 18`. A line that follows from a wrong one thus has its whole calculation, and so has
 * an answer; the verdict compares name and result of neighbours. A line of unknown meaning is compared with the first
 * step that no earlier line has right.
 */
export function reasonOf(problem: WordProblem, lines: readonly JudgedLine[], i: number): string {
  const { text, step } = lines[i] as JudgedLine;
  const done = new Set(lines.slice(0, i).flatMap((line) => (line.right ? (line.step ?? []) : [])));
  const next = problem.plan.findIndex((_, s) => !done.has(s));
  const meant = ANSWER.test(text)
    ? problem.plan.length
    : (step ?? (next < 0 ? problem.plan.length - 1 : next));
  const right = rightSolution(problem).slice(0, meant + 1);
  return `${right.join(', ')}; ${resultOf(text)}`;
}

/** Name and result of a line, without its computation: `Tom: 18` of `Tom: 12 + 7 = 18`. */
export function resultOf(text: string): string {
  const colon = text.indexOf(':');
  const name = colon < 0 ? '' : `${text.slice(0, colon + 1)} `;
  return name + text.slice(Math.max(colon, text.lastIndexOf('=')) + 1).trim();
}
