/** Recognizes text that is no plain arithmetic, so that no verdict is given on it. */
import { type Rational, toNumber } from '../../answers/rational.js';
import { hasTwoUnits, isCompound, isUnit, mixesUnits } from './units.js';

/** A calculation in a text. */
export interface Place {
  /** Position of the expression's first character. */
  readonly at: number;
  /** Position behind its result. */
  readonly end: number;
  /** Value of the expression. */
  readonly value: Rational;
  readonly result: Rational;
  readonly holds: boolean;
}

const SIGN = String.raw`[√∛∜⌊⌋⌈⌉∞□▢○◯_\\{}]|\p{Script=Greek}|\p{No}`;
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
  /^(?:\s?(?:[√∛∜±∓]|\p{Script=Greek}|\\(?!(?:neq?|leq?|geq?|approx|to|text|end)(?![a-z]))[a-z])|\p{No}|[\^{]|_[\d{]|\((?!\p{L}{3})|,?\s*\(?(?:with |an? )*(?:remainder|rem|mod(?:ulo)?)(?!\p{L})|\s*r\.?\s?\d)/iu;

/** A placeholder for a number: a word, a blank, a question mark. */
const UNKNOWN = String.raw`\$?\(?\s*(?:\p{L}|[?_…]|\p{So})`;

/** An unknown operand, or words that change the computation. */
const OPERAND = {
  /**
   * `total + 3 + 4` (`* 3 + 4` is an item of a list), a dash or minus behind something, `total - 3 + 4`, and words such as
   * `twice 3 + 4` and `5 more than 3 * 2`.
   */
  before:
    /(?:[^\s*:][^\S\n]*(?:[-+*×÷/^−–]|(?<!\p{L})x)|(?<!\p{L})(?:twice|thrice|double|triple|(?:half|third|quarter|fourth|fifth|tenth) of)|\d(?:\s\p{L}+)? (?:more|less|fewer) than)\s*\$?$/iu,
  /** `12 - eaten - 3`, `3 + total -4`. A word behind its number is a unit, and so is that behind `7 stickers/page`. */
  within: new RegExp(
    String.raw`\s[-−–]\s*${UNKNOWN}|(?<=[\d)])(?<!\$[\d.,]+)\s/\s+${UNKNOWN}|[+*×÷^]\s*(?:\$?\p{L}[\p{L} ]*[-+*×÷/^=)−–]|[?_…]|\p{So})`,
    'iu',
  ),
  /** `3 + 4 = 9 - total`, `9 apples + eaten`, and the rest of a mixed number, `5 and 2/3`. */
  after: new RegExp(
    String.raw`^(?:(?:[^\S\n]?\p{L}+){0,2}(?:\s*[+*×÷^]|[^\S\n]+[-−–])\s*${UNKNOWN}|[^\S\n]+/\s*${UNKNOWN}|\s*(?:and|&)?\s*\(?\d+/\d+(?![\d.]|\s*[-+*×÷/=]))`,
    'iu',
  ),
};
/** `12-pound` and `30/h`, or `12-total` and `30/n`. */
const JOINED = /(?<=\d)(?:[-−–](?<word>\p{L}+)|\/(?<letter>\p{L})(?!\p{L}))/gu;
/** Letters such as those of `3ab` and `6th`. */
const GLUED = /\d\p{L}{1,3}(?!\p{L})(?!(?<=x)\s*[\d($])/giu;

/** The whole of a mixed number, `1 and 1/4`; not a result, `10/3 = 3.33 and 10/4 = 2.5`. */
const MIXED = /(?<!(?:=\s*|[\d.,])\d*)\d+\s+and\s+$/i;
const ORDINAL = /\d(?:st|nd|rd|th)$/i;

/** Contexts that may explain why a calculation does not come out. */
const CHANGES = {
  /** Words that may belong to it, or not: `half 80 / 2 = 20`, `on average 3 + 4 = 3.5`. */
  before:
    /(?<!\p{L})(?:half|third|quarter|fourth|fifth|tenth|(?:average|mean)(?: of)?|(?:more|less|fewer) than)\s*\$?$/iu,
  /** The remainder of a division, `16 each, with 2 left over`. */
  remainder: /^[^.;=\n]{0,60}(?<!\p{L})(?:remainder|remain(?:s|ing)?|left ?over|modulo)(?!\p{L})/iu,
  /**
   * A percent that is added or taken off, a fraction that divides without brackets, `60 / 3/4`, and text over two
   * lines.
   */
  percent: /[-+−–]\s*\(?[\d.,]+\s?%(?!\s*(?:[*×÷/x]|of))|^[\d.,]+\s?%\s*[-+−–]/,
  fraction: /[/÷]\s+\d+\/\d/,
  line: /\n\s*[^\s=]/,
};
/** A percent that is put on or taken off something else than 1: `80 - 15%` may be 68. */
const APPLIED =
  /(?<![\d.,])(?!1(?:\.0*)?\s*[-+−–])\d[\d.,]*(?:\s\p{L}+)*\s*[-+−–]\s*[\d.,]+\s?%(?!\s*(?:[*×÷/x]|of))/u;
const WITHOUT_PERCENT = /\d(?![\d.,]|\s?%)/;

/** Characters on both sides of a calculation that are looked at. */
const CONTEXT = 80;

/**
 * Whether a calculation can be judged: no sign that is not read here touches it, no operand is a word, its units are
 * one, and where it does not come out no two units or percents explain that.
 */
export function isPlain(text: string, { at, end, value, result, holds }: Place): boolean {
  const own = text.slice(at, end);
  const before = text.slice(Math.max(0, at - CONTEXT), at);
  const after = text.slice(end, end + CONTEXT);
  if (WITHIN.test(own) || BEFORE.test(before) || AFTER.test(after)) return false;
  // A sign of money is not part of the expression.
  const money = before.endsWith('$') ? '$' : '';
  if (OPERAND.within.test(money + own) || OPERAND.before.test(before) || OPERAND.after.test(after))
    return false;
  if (own.startsWith('(') && FUNCTION.test(before)) return false;
  const [computed = '', ...results] = own.split('=');
  const named = results.join('=') + (/^\s*(?!in\s+\p{L})[\p{L}$]+/iu.exec(after)?.[0] ?? '');
  const joined = `${own}${/^[-−–/]\p{L}+/u.exec(after)?.[0] ?? ''}`;
  for (const { groups } of joined.matchAll(JOINED)) {
    const { word = '', letter = '' } = groups ?? {};
    if (!isUnit(word.length > 1 ? word : letter)) return false;
  }
  for (const [name] of `${computed}=${named}`.matchAll(GLUED))
    if (!isUnit(name) && !(holds && ORDINAL.test(name))) return false;
  if (CHANGES.fraction.test(computed) || APPLIED.test(computed)) return false;
  if (mixesUnits(money + computed, named) || isCompound(before, computed)) return false;
  if (MIXED.test(before) && (!holds || /^\d+\/\d/.test(own))) return false;
  if (holds) return true;
  if (CHANGES.before.test(before)) return false;
  const more = toNumber(value) - toNumber(result);
  if (more > 0 && more < 1 && CHANGES.remainder.test(after)) return false;
  if (CHANGES.line.test(computed)) return false;
  if (CHANGES.percent.test(computed) && WITHOUT_PERCENT.test(computed)) return false;
  return !hasTwoUnits(computed, named, toNumber(value) / toNumber(result));
}
