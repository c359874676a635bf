/** What a step comes to, and whether two steps come to the same. */
import { answersEqual } from '../answers/equal.js';
import { extractAnswer } from '../answers/extract.js';
import { formulas } from '../answers/formulas.js';
import { normalisedStep, stepResult, withoutNumber } from './solution.js';

/**
 * Whether two steps have the same result: the answer that they announce, their last formula, or in plain arithmetic their last number.
 * Steps without one are the same only where they read the same.
 */
export function sameResult(a: string, b: string): boolean {
  if (normalisedStep(a) === normalisedStep(b)) return true;
  const [left, right] = [resultOf(a), resultOf(b)];
  return left !== undefined && right !== undefined && answersEqual(left, right).equal;
}

/** A number with nothing to compute in it. */
const PLAIN = /^[-−]?[$€£]?\s?[\d,.]+%?$/;

/** The same for the lines of generated problems, whose result is their last number. */
export function sameNumber(a: string, b: string): boolean {
  const number = stepResult(a);
  return number !== undefined && number === stepResult(b);
}

/** The result of a step as an answer; undefined where it has none. */
export function resultOf(step: string): string | undefined {
  const text = withoutNumber(step).replace(/(?<=\d) [xX] (?=\d)/g, ' * ');
  const found = extractAnswer(text);
  const announced = found && ['boxed', 'marker', 'phrase'].includes(found.method) ? found.answer : undefined;
  const formula = lastFormula(announced ?? text);
  // Words with numbers among them: `Tom has 12 + 7 = 19 apples.`
  if (formula === undefined) return stepResult(announced ?? step) ?? announced;
  const value = formula.slice(formula.lastIndexOf('=') + 1).trim();
  // `3^2 + 4^2 = 25` is 25; of `2x + 3 = 7` the whole is the result.
  return value !== formula && answersEqual(formula, value).equal ? value : formula;
}

/** The last formula, between its signs or as a run of words that are none; undefined where the text is words and plain numbers. */
function lastFormula(text: string): string | undefined {
  const last = [...formulas(text)].findLast((formula) => formula.text.trim() !== '');
  if (last !== undefined && !/\d/.test(text.slice(last.end))) return last.text.trim();
  const run = lastRun(text.split(/\s+/));
  const value = run.slice(run.lastIndexOf('=') + 1).trim();
  if (!/\p{L}/u.test(run) && PLAIN.test(value)) return undefined;
  return run === '' ? undefined : run;
}

/** The last words in a row that hold no word of a language, but a digit or a command; none where a result is missing after them. */
function lastRun(words: readonly string[]): string {
  const isFormula = (word: string) => !/\p{L}{2}/u.test(word.replace(/\\[a-zA-Z]+|\{[^{}]*\}/g, ''));
  const end = words.findLastIndex((word) => isFormula(word) && /[\d\\^]/.test(word));
  if (end < 0 || words[end + 1]?.startsWith('=')) return '';
  const before = words.slice(0, end).findLastIndex((word) => !isFormula(word));
  return words
    .slice(before + 1, end + 1)
    .join(' ')
    .replace(/^(?:[aAI] )+(?=[\d$])/, '')
    .replace(/[.,;:!?]+$/, '');
}
