/** What is no plain arithmetic, so that nothing is said of it. */
import { type Rational, toNumber } from '../../answers/rational.js';
import { hasTwoUnits, isUnit } from './units.js';

/** A calculation in a text. */
export interface Place {
  /** The first character of what is computed. */
  readonly at: number;
  /** Behind its result. */
  readonly end: number;
  /** Of what is computed. */
  readonly value: Rational;
  readonly result: Rational;
  readonly holds: boolean;
}

const SIGN = String.raw`[√∛∜⌊⌋⌈⌉∞_\\{}]|\p{Script=Greek}|\p{No}`;
const WORD = String.raw`(?<!\p{L})(?:sqrt|root(?: of)?|log|ln|sin|cos|tan|gcd|lcm|mod(?:ulo)?|times|plus|minus|choose|(?:divided|multiplied) by|to the power(?: of)?)`;

/** Roots, bars, Greek letters, other brackets, names of functions and powers of letters. */
const WITHIN = new RegExp(
  String.raw`${SIGN}|(?![+×÷=−<>~])\p{Sm}|[[\]]|(?:\p{L}\p{L}|[a-wyz])\(|\p{L}\s?\^|${WORD}\s*[\d($]|(?<!\p{L})(?:squared|cubed)(?!\p{L})`,
  'iu',
);
/** And operators behind them, `π × 5` and `4! / 3`. */
const BEFORE = new RegExp(
  String.raw`(?:(?:[√∛∜⌊⌋⌈⌉∞}]|(?<=[\p{L}\d])_|\p{Script=Greek}|\p{No})\s*[-+*×÷/−–^]?|\](?=\()|\d\s?!\s*[-+*×÷/−–^]|${WORD})\s*\$?$`,
  'iu',
);
const FUNCTION = /\p{L}$/u;
const AFTER =
  /^(?:\s?(?:[√∛∜±∓]|\p{Script=Greek}|\\(?!(?:neq?|leq?|geq?|approx|to|text|end)(?![a-z]))[a-z])|\p{No}|[\^{]|_[\d{]|\((?!\p{L}{3})|\s*[+*×÷^]\s*\p{L}|,?\s*\(?(?:with |an? )*(?:remainder|rem|mod(?:ulo)?)(?!\p{L})|\s*r\.?\s?\d)/iu;

/** An operand in words: before an operator, `total + 3 + 4` (`* 3 + 4` is an item of a list), and behind a minus, `12 - eaten - 3`. */
const OPERAND = {
  before: /[^\s*:][^\S\n]*(?:[+*×÷/^]|(?<!\p{L})x)\s*\$?$/iu,
  within: /\s[-−–]\s*\p{L}/u,
};

/** What may be why a calculation does not come out. */
const CHANGES = {
  /** Words such as `twice 3 + 4` and `1 and 1/4 cup`, and a dash or minus behind something, `total - 3 + 4`. */
  before:
    /(?:(?<!\p{L})(?:twice|thrice|double|triple|(?:half|third|quarter|fourth|fifth|tenth|average|mean)(?: of)?|(?:more|less|fewer) than)|\d\s+and|[^\s*:][^\S\n]*[-−–])\s*\$?$/iu,
  /** The rest of a mixed number, and a ratio, `24/Y`. */
  after: /^\s*(?:(?:and|&)?\s*\(?\d+\/\d|\/\s*[a-z](?!\p{L}))/iu,
  /** What remains after as many as fit, `16 each, with 2 left over`. */
  remainder: /^[^.;=\n]{0,60}(?<!\p{L})(?:remainder|remain(?:s|ing)?|left ?over|modulo)(?!\p{L})/iu,
  /** A percent that is put on or taken off, and a fraction that divides without brackets, `60 / 3/4`; and what stands in two lines. */
  percent: /[-+−–]\s*\(?[\d.,]+\s?%(?!\s*(?:[*×÷/x]|of))|^[\d.,]+\s?%\s*[-+−–]/,
  fraction: /[/÷]\s+\d+\/\d/,
  line: /\n\s*[^\s=]/,
};
const WITHOUT_PERCENT = /\d(?![\d.,]|\s?%)/;

/** Characters on both sides of a calculation that are looked at. */
const CONTEXT = 80;

/**
 * Whether something can be said of a calculation: no sign that is not read here touches it, no operand is a word, and where it does not
 * come out no two units, percents or words may be why.
 */
export function isPlain(text: string, { at, end, value, result, holds }: Place): boolean {
  const own = text.slice(at, end);
  const before = text.slice(Math.max(0, at - CONTEXT), at);
  const after = text.slice(end, end + CONTEXT);
  if (WITHIN.test(own) || BEFORE.test(before) || AFTER.test(after)) return false;
  if (OPERAND.within.test(own) || OPERAND.before.test(before)) return false;
  if (own.startsWith('(') && FUNCTION.test(before)) return false;
  if (holds) return true;
  const [computed = '', ...results] = own.split('=');
  if (CHANGES.before.test(before) || CHANGES.after.test(after)) return false;
  const more = toNumber(value) - toNumber(result);
  if (more > 0 && more < 1 && CHANGES.remainder.test(after)) return false;
  if (CHANGES.fraction.test(computed) || CHANGES.line.test(computed)) return false;
  if (CHANGES.percent.test(computed) && WITHOUT_PERCENT.test(computed)) return false;
  const named = results.join('=') + (/^\s*(?!in\s+\p{L})[\p{L}$]+/iu.exec(after)?.[0] ?? '');
  // Letters such as those of `3ab` and `6th`.
  for (const [name] of `${computed}=${named}`.matchAll(/\d\p{L}{1,3}(?!\p{L})(?!(?<=x)\s*[\d($])/giu))
    if (!isUnit(name)) return false;
  return !hasTwoUnits(computed, named, toNumber(value) / toNumber(result));
}
