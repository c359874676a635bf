/** Exact labels of solutions that a model wrote. */
import type { StepRecord } from '../../records/record.js';
import { statesAnswer } from '../label-rules.js';
import { judgeSolution } from './oracle.js';
import type { WordProblem } from './problem.js';

/** The `solutionRecord` of a model's lines. A solution that was cut off has no outcome, so that no model learns it as wrong. */
export function oracleRecord(
  problem: WordProblem,
  lines: readonly string[],
  { cutOff = false } = {},
): StepRecord {
  const judged = judgeSolution(problem, lines);
  return {
    problem: problem.problem,
    gold_answer: problem.answer,
    steps: judged.lines.map(({ text, right }) => ({ text, label: right ? 1 : 0, kind: 'normal' })),
    ...(!cutOff && statesAnswer(lines.at(-1) ?? '') ? { outcome: judged.isAnswerRight ? 1 : 0 } : {}),
  };
}
