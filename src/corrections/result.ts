/** The result of a step, and whether two steps have the same result. */
import { answersEqual } from '../answers/equal.js';
import { extractAnswer, isMarked } from '../answers/extract.js';
import { formulas } from '../answers/formulas.js';
import { lastNumber, normalisedStep, stepResult, withoutNumber } from './solution.js';

/**
 * Whether two steps have the same result: the answer that they announce, their last formula, in plain arithmetic their last number, in
 * words all their numbers. Steps without one are the same only where they read the same.
 */
export function sameResult(a: string, b: string): boolean {
  if (normalisedStep(a) === normalisedStep(b)) return true;
  const [left, right] = [resultOf(a), resultOf(b)];
  if (left === undefined || right === undefined || !answersEqual(left, right).equal) return false;
  if (left.includes('=') || right.includes('=')) return true;
  // `12 + 7 = 19 on day 2`: another number may come last.
  const [one, other] = [equated(a), equated(b)];
  return one === undefined || other === undefined || answersEqual(one, other).equal;
}

/** The number behind the last equals sign, where nothing is computed with it. */
function equated(step: string): string | undefined {
  const text = step.slice(step.lastIndexOf('=') + 1);
  if (text.length > step.length - 1) return undefined;
  return /^\s*([-−]?\s?[$€£]?\d+(?:,\d{3})*(?:\.\d+)?)(?!\s*[-−+*/×÷^:\d\\(]|\s*[xX]\s*\d|\p{L})/u.exec(
    text,
  )?.[1];
}

/** Between formulas or numbers that are one result only together: `x = 2 or x = 3`, `\frac{1}{2} of 20`. */
const JOINED = /^\s*(?:,|,?\s?(?:or|and)\b|of\b|mod\b)\s*$/;
/** A number with the signs that change it; a hyphen between words is no sign. */
const NUMBER =
  /((?:(?<![\p{L}\d])[-−])?\d+(?:,\d{3})*(?:\.\d+)?)(?:\s(hundred|thousand|million|billion|trillion|dozen|dollars?|cents?)\b)?/giu;
/** A number with nothing to compute in it. */
const PLAIN = /^[-−]?[$€£]?\s?[\d,.]+%?$/;

/** Whether two lines of generated problems have the same result, which is their last number. */
export function sameNumber(a: string, b: string): boolean {
  const number = stepResult(a);
  return number !== undefined && number === stepResult(b);
}

/** The result of a step as an answer; undefined where it has none. */
export function resultOf(step: string): string | undefined {
  const text = withoutNumber(step).replace(/(?<=\d) [xX] (?=\d)/g, ' * ');
  const found = extractAnswer(text);
  const announced = found && isMarked(found.method) ? found.answer : undefined;
  const formula = lastFormula(announced ?? text);
  // Words with numbers among them: `Tom has 12 + 7 = 19 apples.`
  if (formula === undefined) return saidResult(announced ?? step) ?? announced;
  const value = formula.slice(formula.lastIndexOf('=') + 1).trim();
  // The result of `3^2 + 4^2 = 25` is 25. With letters, as in `2x + 3 = 7` and `x = 3`, the whole formula is the
  // result.
  const isNamed = /\p{L}/u.test(
    formula.replace(/\\(?:d?frac|sqrt|cdot|times|div|left|right|pi)(?![a-zA-Z])/g, ''),
  );
  return value !== formula && !isNamed && answersEqual(formula, value).equal ? value : formula;
}

/**
 * The last number behind an equals sign, else all that the words say, with what makes them others (`1.5 million`, `5 cents`). Nothing
 * says which of several is the result, and by the last one `Tom has 5 and Ann has 3` would come to what `Tom has 6 and Ann has 3`
 * does: they are one result together, in their order.
 */
function saidResult(text: string): string | undefined {
  const said = [...withoutNumber(text).matchAll(NUMBER)].map(([, number = '', scale]) =>
    scale === undefined ? lastNumber(number) : `${lastNumber(number)} ${scale}`,
  );
  return said.length < 2 || text.includes('=') ? said.at(-1) : `(${said.join(', ')})`;
}

/** The last formula, between its signs or as a run of words that are none; undefined where the text is words and plain numbers. */
function lastFormula(text: string): string | undefined {
  const all = [...formulas(text)].filter((formula) => formula.text.trim() !== '');
  const last = all.at(-1);
  if (last !== undefined && !/\d/.test(text.slice(last.end))) {
    let first = all.length - 1;
    while (first > 0 && JOINED.test(text.slice(all[first - 1]!.end, all[first]!.at))) first--;
    const parts = all.slice(first).map((formula, i) => {
      const before = i === 0 ? '' : text.slice(all[first + i - 1]!.end, formula.at);
      return before + formula.text.trim();
    });
    return parts.join('');
  }
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
  const start = (until: number): number => {
    const before = words.slice(0, until).findLastIndex((word) => !isFormula(word));
    const [word = '', previous = ''] = [words[before], words[before - 1]];
    const joins = /^(?:of|mod)$/.test(word)
      ? /\/|\\[a-z]*frac|%$/.test(previous) || word === 'mod'
      : /^(?:or|and)$/.test(word);
    if (!joins || !isFormula(previous) || !/[\d\\^]/.test(previous)) return before;
    const earlier = start(before);
    const isNamed = /(?:^|\s)\p{L}(?:_\S+)?\s?=/u.test(words.slice(earlier + 1, before).join(' '));
    return /^(?:of|mod)$/.test(word) || isNamed ? earlier : before;
  };
  const before = start(end);
  return words
    .slice(before + 1, end + 1)
    .join(' ')
    .replace(/^(?:[aAI] )+(?=[\d$])/, '')
    .replace(/[.,;:!?]+$/, '');
}
