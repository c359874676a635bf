/** Sums as solutions in words write them, `7 stickers/page * 6 pages`, and their exact values. */
import { BudgetExceeded, StepBudget } from '../../answers/budget.js';
import {
  add,
  inverse,
  multiply,
  NotExact,
  negative,
  parseDecimal,
  power,
  type Rational,
  whole,
  wholeNumber,
} from '../../answers/rational.js';

export type Operator = '+' | '-' | '*' | '/' | '^';

/** A piece of an expression, with its place in the text. */
export type Part =
  | { readonly kind: 'number'; readonly at: number; readonly end: number; readonly value: Rational }
  | { readonly kind: 'operator'; readonly at: number; readonly end: number; readonly operator: Operator }
  | { readonly kind: 'bracket'; readonly at: number; readonly end: number; readonly bracket: '(' | ')' };

export type NumberPart = Extract<Part, { kind: 'number' }>;
export type OperatorPart = Extract<Part, { kind: 'operator' }>;

const NUMBER = String.raw`(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)`;
/**
 * A number with other points, commas or colons, such as `1,5`, `1.200.000` and `10:30`, is no number here rather than a
 * part of one.
 */
const WHOLE = String.raw`(?<!\d[.,:]?|\.)${NUMBER}(?![.,:]?\d)%?`;
const NUMBERS = new RegExp(WHOLE, 'gu');
/** A sign before a word belongs to the word: `stickers/page`, `12-pound`. */
const PIECE = new RegExp(
  `(?<number>${WHOLE})|(?<bracket>[()])|(?<operator>[+*×÷^]|[-/−–](?=\\s*(?:[-−–]\\s*)?[\\d($.])|(?<!\\p{L})[xX](?!\\p{L}))`,
  'gu',
);
const OPERATORS: Readonly<Record<string, Operator>> = {
  '+': '+',
  '-': '-',
  '−': '-',
  '–': '-',
  '*': '*',
  '×': '*',
  x: '*',
  X: '*',
  '/': '/',
  '÷': '/',
  '^': '^',
};

/** Enough for any sum of a solution in words. */
const STEPS = 5000;

/** The value of a number as written, with separators of thousands or a percent sign. */
export function numberValue(text: string): Rational {
  const budget = new StepBudget(STEPS);
  const value = parseDecimal(text.replace(/[,%]/g, ''), budget);
  return text.endsWith('%') ? multiply(value, inverse(whole(100), budget), budget) : value;
}

/** All numbers of a text, in order; without those that no solution in words has. */
export function numbersIn(text: string): NumberPart[] {
  return [...text.matchAll(NUMBERS)].filter(isShort).map((found) => ({
    kind: 'number',
    at: found.index,
    end: found.index + found[0].length,
    value: numberValue(found[0]),
  }));
}

const MAX_CHARACTERS = 24;

const isShort = ([text]: RegExpMatchArray) => text.length <= MAX_CHARACTERS;

/** The pieces of an expression; words between them are units, and count for nothing. A number has the minus that is its sign. */
export function partsOf(text: string): Part[] {
  const parts: Part[] = [];
  for (const found of text.matchAll(PIECE)) {
    if (!isShort(found)) continue;
    const place = { at: found.index, end: found.index + found[0].length };
    const { number, bracket } = found.groups ?? {};
    if (bracket !== undefined) parts.push({ kind: 'bracket', ...place, bracket: bracket as '(' | ')' });
    else if (number === undefined)
      parts.push({ kind: 'operator', ...place, operator: OPERATORS[found[0]] as Operator });
    else {
      const value = numberValue(number);
      const sign = signBefore(text, parts, place.at);
      if (sign) parts.pop();
      parts.push({
        kind: 'number',
        at: sign?.at ?? place.at,
        end: place.end,
        value: sign ? negative(value) : value,
      });
    }
  }
  return parts;
}

/** A minus right before a number, with no value before it: `-3 + 5`, `4 * -2`; a dash before a space is none. */
function signBefore(text: string, parts: readonly Part[], at: number): OperatorPart | undefined {
  const [before, sign] = [parts.at(-2), parts.at(-1)];
  if (sign?.kind !== 'operator' || sign.operator !== '-' || !/^\$?$/.test(text.slice(sign.end, at)))
    return undefined;
  if (/[\p{L}\d)]/u.test(text.slice(Math.max(0, sign.at - 1), sign.at))) return undefined;
  const endsValue = before?.kind === 'number' || (before?.kind === 'bracket' && before.bracket === ')');
  return endsValue ? undefined : sign;
}

/** No solution in words has a higher power, or more brackets in each other. */
const HIGHEST_POWER = 100;
const DEEPEST = 50;

/** The exact value; undefined where the pieces are no expression, and for a division by zero. */
export function exactValue(parts: readonly Part[]): Rational | undefined {
  const budget = new StepBudget(STEPS);
  let at = 0;
  let depth = 0;
  const operand = (): Rational => {
    const part = parts[at++];
    if (part?.kind === 'number') return part.value;
    if (part?.kind !== 'bracket' || part.bracket !== '(') throw new NotExact('no operand');
    if (++depth > DEEPEST) throw new NotExact('too many brackets');
    const inner = sum();
    depth--;
    const close = parts[at++];
    if (close?.kind !== 'bracket' || close.bracket !== ')') throw new NotExact('an open bracket');
    return inner;
  };
  const isNext = (...operators: readonly Operator[]) => {
    const part = parts[at];
    return part?.kind === 'operator' && operators.includes(part.operator) ? part.operator : undefined;
  };
  const raised = (): Rational => {
    const isBracket = parts[at]?.kind === 'bracket';
    const base = operand();
    if (!isNext('^')) return base;
    at++;
    // A sign holds for the power: `-2^2` is -4.
    const isNegative = !isBracket && base.over < 0n;
    const value = isNegative ? negative(base) : base;
    const exponent = wholeNumber(raised());
    if (exponent === undefined || Math.abs(exponent) > HIGHEST_POWER) throw new NotExact('no whole power');
    const raisedValue = power(value, exponent, budget);
    return isNegative ? negative(raisedValue) : raisedValue;
  };
  const product = (): Rational => {
    let value = raised();
    for (let operator = isNext('*', '/'); operator; operator = isNext('*', '/')) {
      at++;
      const right = raised();
      value = multiply(value, operator === '*' ? right : inverse(right, budget), budget);
    }
    return value;
  };
  const sum = (): Rational => {
    let value = product();
    for (let operator = isNext('+', '-'); operator; operator = isNext('+', '-')) {
      at++;
      const right = product();
      value = add(value, operator === '+' ? right : negative(right), budget);
    }
    return value;
  };
  try {
    const value = sum();
    return at === parts.length ? value : undefined;
  } catch (error) {
    if (error instanceof NotExact || error instanceof BudgetExceeded) return undefined;
    throw error;
  }
}
