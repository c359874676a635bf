/** Conditions on a teacher's correction for it to be learned. */
import { answersEqual } from '../answers/equal.js';
import { extractAnswer } from '../answers/extract.js';
import { formulas } from '../answers/formulas.js';
import { splitOutside } from '../records/mathematics.js';
import { resultOf, sameResult } from './result.js';
import { lastNumber, normalisedStep, stepResult } from './solution.js';
import type { Correction, WrongStep } from './teacher.js';

/** A longer reflection explains more than the step that it is about. */
const MAX_WORDS = 60;

export type CorrectionFault = 'empty' | 'several_lines' | 'too_long' | 'tells_answer' | 'other_result';

/**
 * The first reason to reject a correction.
 * - `tells_answer`: the reflection has the final answer, and the step is not the last
 * - `other_result`: the result of the improvement is not that of the right step (`sameResult`)
 */
export function correctionFault(
  { answer, right, isLast }: Pick<WrongStep, 'answer' | 'right' | 'isLast'>,
  { reflection, improvement }: Correction,
  separator = '\n',
): CorrectionFault | undefined {
  if (reflection.trim() === '' || improvement.trim() === '') return 'empty';
  if ([reflection, improvement].some((text) => splitOutside(text, separator).length > 1))
    return 'several_lines';
  if (reflection.trim().split(/\s+/).length > MAX_WORDS) return 'too_long';
  if (!isLast && !comesTo(right, answer) && mentions(reflection, answer)) return 'tells_answer';
  if (!sameResult(improvement, right)) return 'other_result';
  return undefined;
}

/** Whether the right step already has the answer, so that a reflection on it may name it. */
function comesTo(step: string, answer: string): boolean {
  return [resultOf(step), stepResult(step)].some(
    (result) => result !== undefined && answersEqual(result, answer).equal,
  );
}

function mentions(text: string, answer: string): boolean {
  const number = lastNumber(answer);
  // An answer in words is short and may occur in any sentence: it counts only where it is announced as the answer.
  if (number === undefined)
    return extractAnswer(text)?.answer.trim().toLowerCase() === answer.trim().toLowerCase();
  // One of several numbers, as in `\\frac{1}{2}` or `(1, 2)`, tells nothing.
  if (answer.replace(/,(?=\d{3})/g, '').match(/\d+(?:\.\d+)?/g)?.length !== 1 || /[\\^]/.test(answer))
    return (
      normalisedStep(text).includes(normalisedStep(answer)) ||
      [...formulas(text)].some((formula) => answersEqual(formula.text, answer).equal)
    );
  return (text.match(/[-−]?\d+(?:,\d{3})*(?:\.\d+)?/g) ?? []).some((found) => lastNumber(found) === number);
}
