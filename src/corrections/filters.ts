/** What a teacher's correction must be to be learned. */
import { extractAnswer } from '../answers/extract.js';
import { lastNumber, stepResult } from './solution.js';
import type { Correction, WrongStep } from './teacher.js';

/** A longer reflection explains more than the step that it is about. */
const MOST_WORDS = 60;

export type CorrectionFault = 'empty' | 'several_lines' | 'too_long' | 'tells_answer' | 'other_result';

/**
 * The first reason to reject a correction.
 * - `tells_answer`: the reflection has the final answer, and the step is not the last
 * - `other_result`: the result of the improvement, its last number, is not that of the right step
 */
export function correctionFault(
  { answer, right, isLast }: Pick<WrongStep, 'answer' | 'right' | 'isLast'>,
  { reflection, improvement }: Correction,
  separator = '\n',
): CorrectionFault | undefined {
  if (reflection.trim() === '' || improvement.trim() === '') return 'empty';
  if (reflection.includes(separator) || improvement.includes(separator)) return 'several_lines';
  if (reflection.trim().split(/\s+/).length > MOST_WORDS) return 'too_long';
  if (!isLast && !sameNumber(right, answer) && mentions(reflection, answer)) return 'tells_answer';
  if (stepResult(improvement) !== stepResult(right)) return 'other_result';
  return undefined;
}

/** Where the right step has the answer already, a reflection on it may name it. */
function sameNumber(step: string, answer: string): boolean {
  const number = lastNumber(answer);
  return number !== undefined && number === stepResult(step);
}

function mentions(text: string, answer: string): boolean {
  const number = lastNumber(answer);
  // An answer in words is short and may stand in any sentence: only where it is said to be the answer does it count.
  if (number === undefined)
    return extractAnswer(text)?.answer.trim().toLowerCase() === answer.trim().toLowerCase();
  return (text.match(/-?\d+(?:,\d{3})*(?:\.\d+)?/g) ?? []).some((found) => lastNumber(found) === number);
}
