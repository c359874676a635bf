/** The calculations that a step writes out, in the notations that people use, and whether each comes out. */
import { BudgetExceeded } from '../../answers/budget.js';
import { equals, type Rational, toNumber } from '../../answers/rational.js';
import {
  type Equation,
  equationsIn,
  GOES_ON,
  hasLetters,
  LONGEST_LINE,
  lastExpression,
  plainSigns,
} from './equations.js';
import { exactValue, numbersIn, partsOf } from './expression.js';
import { isPlain } from './plain.js';
import { rounds } from './rounding.js';

export interface Calculation {
  /** The calculation as it was read. */
  readonly text: string;
  readonly holds: boolean;
}

/**
 * Every readable calculation of a step; empty where it writes out none. Points and commas are read as in English, and
 * as in most of Europe (`1.200 + 300 = 1.500`) where only that makes sense of the step. A step longer than {@link
 * LONGEST_LINE} has none.
 */
export function calculationsIn(step: string): Calculation[] {
  if (step.length > LONGEST_LINE) return [];
  try {
    return calculations(step);
  } catch (error) {
    // A number too large to compute gives no calculation.
    if (error instanceof BudgetExceeded) return [];
    throw error;
  }
}

function calculations(step: string): Calculation[] {
  const text = plainWords(plainSigns(step));
  const english = read(text);
  if (english.length > 0 && english.every(({ holds }) => holds)) return english;
  const others = [EUROPEAN.test(text) ? withPoints(text) : text, apart(text)]
    .filter((other) => other !== text)
    .map(read);
  const right = others.find(
    (other) => other.length >= Math.max(1, english.length) && other.every(({ holds }) => holds),
  );
  if (right || english.length > 0) return right ?? english;
  // Text that is not plain in English is not wrong in another reading, `1.125 miles/minute * 4 minutes = 4.5 hours`.
  return (NOT_ENGLISH.test(text) && others.find((found) => found.length > 0)) || [];
}

/** A colon that divides (`12:4 = 3`, `12 : 4 = 3`; not `10:30`, and not `Step 1:4 + 3 = 7`), percents of something, and large numbers in groups. */
function plainWords(text: string): string {
  return text
    .replace(/(?<![\d:])(\d+)(\s?):\2(\d+)(?=\s*=)/g, (all, left: string, _, right: string) =>
      isTime(all) ? all : `${left} ÷ ${right}`,
    )
    .replace(/^(\s*\p{L}+ )(\d+:\d+)/gmu, (all, _, pair: string) =>
      isTime(pair) ? all : all.replace(':', ': '),
    )
    .replace(/(?<=\d)\s(?:%|per ?cent\b)|(?<=\d)per ?cent\b/gi, '%')
    .replace(/(?<=%|\d\/\d+)\s+of\s+(?=[$\d(])/gi, ' × ')
    .replace(/(?<![\d.,])\d{1,3}(?:[\u00a0\u2009\u202f'’]\d{3})+(?!\d)/g, grouped)
    .replace(/(?<=(?:^|[-+*×÷/^:=(−–])\s*)\d{1,3}(?: \d{3})+(?!\d|-\p{L})/gu, grouped);
}

const isTime = (text: string) => /^(?:[01]?\d|2[0-4]):[0-5]\d$/.test(text);
const grouped = (number: string) => number.replace(/\D/g, ',');

/** A number that is no English one, `1,5`, or that has a point before three digits, `1.200`. */
const EUROPEAN = /(?<![\d.,])\d{1,3}\.\d{3}(?!\d)|\d,(?!\d{3}(?!\d))\d|(?:\d{4}|(?<!\d)0),\d/;

const NOT_ENGLISH = /\d,(?!\d{3}(?!\d))\d|(?:\d{4}|(?<!\d)0),\d|\d\.\d{3}[.,]\d/;

/** `1.200,50` as `1,200.50`. */
const withPoints = (text: string) =>
  text.replace(/(?<!\d[.,]?)(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?(?![.,]?\d)/g, (number) =>
    number.replaceAll('.', '').replace(',', '.'),
  );

/** Calculations side by side: `12+7=19,5+3=8`. */
const apart = (text: string) =>
  text.replace(/(=\s*\$?\d+),(?!\d{3}(?!\d))(?=\$?\d+\s*[-+*×÷/x^][^=,]*=)/g, '$1, ');

function read(line: string): Calculation[] {
  const { text, equations } = equationsIn(line);
  return [
    ...equations.map(({ expression, at, result, holds }) => ({
      text: at === undefined ? expression : text.slice(at, result.end),
      holds,
    })),
    ...equations.flatMap((equation) => [...rewrittenAs(equation, text), ...chainedTo(equation, text)]),
    ...turnedAround(text),
  ];
}

/** Characters of a sum that another is written for. */
const LONGEST_SUM = 200;

/**
 * The sums that repeat a sum with a result: `(5 + 3) * 2 = 8 * 2 = 16`. One that begins with the value of the sum
 * before it continues that sum, `5 * 2 = 10 + 3 = 13`, and does not repeat it.
 */
function rewrittenAs({ at, expression, value }: Equation, text: string): Calculation[] {
  const found: Calculation[] = [];
  if (at === undefined) return found;
  let own = { at, expression, value };
  for (;;) {
    const from = Math.max(0, own.at - LONGEST_SUM);
    const before = text.slice(from, own.at);
    const equalSign = /(?<![<>!≤≥≠~≈:=])={1,2}\s*\$?$/.exec(before);
    const sum = equalSign ? before.slice(0, equalSign.index) : '';
    const last = lastExpression(sum);
    // Words may name operands that are not computed: `Week 1 + Week 2 = 35 + 35`.
    if (!last || /[a-wyz]/iu.test(sum.slice(last.at))) return found;
    const left = { ...last, at: last.at + from };
    const parts = partsOf(left.expression);
    const leftValue = parts.length > 1 ? exactValue(parts) : undefined;
    if (leftValue === undefined) return found;
    const holds = equals(leftValue, own.value);
    const end = own.at + own.expression.length;
    const place = { at: left.at, end, value: leftValue, result: own.value, holds };
    const [first] = numbersIn(own.expression);
    const goesOn = !holds && first !== undefined && rounds(leftValue, own.expression.slice(first.at));
    const isRounded = !holds && /\.\d/.test(text.slice(left.at, end)) && isNear(leftValue, own.value);
    if (!goesOn && !isRounded && isPlain(text, place)) found.push({ text: text.slice(left.at, end), holds });
    own = { ...left, value: leftValue };
  }
}

/** Whether two values differ by no more than sums of rounded numbers do. */
const isNear = (a: Rational, b: Rational) =>
  Math.abs(toNumber(a) - toNumber(b)) <= 0.01 * Math.abs(toNumber(a));

/**
 * The calculations that continue a result: `12 + 7 = 19 = 20`. A result in another unit, `60 minutes = 1 hour`, is
 * passed over.
 */
function chainedTo({ value, result }: Equation, text: string): Calculation[] {
  const found: Calculation[] = [];
  let [known, from] = [result, result.end];
  for (;;) {
    const link = /^(?<unit>[^\d=<>≈~!?.,;:()+*×÷/^]{0,30}?)={1,2}\s*(?:\((?=[-−–]))?\$?(?=[-−–]?\d)/u.exec(
      text.slice(from),
    );
    const start = from + (link?.[0].length ?? 0);
    const next = link && partsOf(text.slice(start, start + 32).replace(/(?<=\d)[^\d.,%].*$/s, ''))[0];
    if (next?.kind !== 'number' || next.at !== 0) return found;
    const rest = text.slice(start + next.end);
    if (GOES_ON.test(rest)) return found;
    const units = [link?.groups?.unit ?? '', /^\s*([\p{L}°]+)/u.exec(rest)?.[1] ?? ''].map((unit) =>
      unit.trim(),
    );
    const holds =
      equals(next.value, known.value) ||
      rounds(value, text.slice(start).replace(/^[−–]/, '-'), text.slice(0, from));
    if (
      !holds &&
      isOtherUnit(
        units,
        Number(known.value.over) / Number(known.value.under),
        Number(next.value.over) / Number(next.value.under),
      )
    )
      return found;
    const end = start + next.end;
    if (!isPlain(text, { at: known.at, end, value, result: next.value, holds })) return found;
    found.push({ text: text.slice(known.at, end), holds });
    [known, from] = [{ ...next, at: start, end }, end];
  }
}

/** Factors between units of time, money, length and weight. */
const FACTORS = [4, 7, 10, 12, 16, 24, 30, 36, 52, 60, 100, 365, 1000, 1440, 3600, 5280];

/** Two names are two units; one name may be one that the other number leaves out. */
function isOtherUnit([first = '', second = '']: readonly string[], known: number, next: number): boolean {
  if (first === '' && second === '') return false;
  if (first !== '' && second !== '') return first.toLowerCase() !== second.toLowerCase();
  return FACTORS.some((factor) => known === factor * next || next === factor * known);
}

/** The text allowed before a number that is followed by `=` and a sum. A word would be its name: `Day 1 = 12 + 7`. */
const LEAD =
  /^(?:\s|\d+\)\s|[-*•]\s|\b(?:so|then|thus|hence|therefore|and|but|because|since|as|that is)\b)*\$?$/iu;

/** The result first: `18 = 12 + 7`. */
function turnedAround(text: string): Calculation[] {
  return text.split(/[;!?\n]|[.,:](?!\d)/u).flatMap((clause) => {
    const [left = '', right, ...more] = clause.split('=');
    if (right === undefined || more.some((side) => side === '')) return [];
    const [number, ...others] = numbersIn(left);
    const sum = partsOf(right);
    if (!number || others.length > 0 || !LEAD.test(left.slice(0, number.at))) return [];
    // A unit may be turned into another: `4 hours = 4 * 60`.
    if (left.slice(number.end).trim() !== '' || hasLetters(right)) return [];
    if (sum.filter(({ kind }) => kind === 'number').length < 2 || sum[0]?.kind === 'operator') return [];
    const value = exactValue(sum);
    if (value === undefined) return [];
    const holds = rounds(value, left.slice(number.at), right);
    const place = { at: 0, end: right.length, value, result: number.value, holds };
    return isPlain(right, place) ? [{ text: clause.trim(), holds }] : [];
  });
}
