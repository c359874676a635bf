/** The calculations that a step writes out, in the notations that people use, and whether each comes out. */
import { BudgetExceeded } from '../../answers/budget.js';
import { equals } from '../../answers/rational.js';
import { type Equation, equationsIn, GOES_ON, hasLetters, plainSigns } from './equations.js';
import { exactValue, numbersIn, partsOf } from './expression.js';
import { rounds } from './rounding.js';

export interface Calculation {
  /** As it was read. */
  readonly text: string;
  readonly holds: boolean;
}

/**
 * Every calculation of a step that can be read; empty where it writes out none. Points and commas are read as in English, and as in most
 * of Europe (`1.200 + 300 = 1.500`) where that makes sense of a step and English does not.
 */
export function calculationsIn(step: string): Calculation[] {
  try {
    return calculations(step);
  } catch (error) {
    // Too large to compute, or nested too deeply: nothing is said of it.
    if (error instanceof BudgetExceeded || error instanceof RangeError) return [];
    throw error;
  }
}

function calculations(step: string): Calculation[] {
  const text = plainWords(plainSigns(step));
  const english = read(text);
  if (english.length > 0 && english.every(({ holds }) => holds)) return english;
  const other = withPoints(text);
  const european = other === text ? [] : read(other);
  if (english.length === 0) return european;
  return european.length >= english.length && european.every(({ holds }) => holds) ? european : english;
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

/** `1.200,50` as `1,200.50`. */
const withPoints = (text: string) =>
  text.replace(/(?<!\d[.,]?)(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?(?![.,]?\d)/g, (number) =>
    number.replaceAll('.', '').replace(',', '.'),
  );

function read(line: string): Calculation[] {
  const { text, equations } = equationsIn(line);
  return [
    ...equations.map(({ expression, at, result, holds }) => ({
      text: at === undefined ? expression : text.slice(at, result.end),
      holds,
    })),
    ...equations.flatMap((equation) => chainedTo(equation, text)),
    ...turnedAround(text),
  ];
}

/** What goes on from a result: `12 + 7 = 19 = 20`. A result in another unit, `60 minutes = 1 hour`, is passed over. */
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
    found.push({ text: text.slice(known.at, start + next.end), holds });
    [known, from] = [{ ...next, at: start, end: start + next.end }, start + next.end];
  }
}

/** How many of one unit are another: of time, money, lengths and weights. */
const FACTORS = [4, 7, 10, 12, 16, 24, 30, 36, 52, 60, 100, 365, 1000, 1440, 3600, 5280];

/** Two names are two units; one name may be one that the other number leaves out. */
function isOtherUnit([first = '', second = '']: readonly string[], known: number, next: number): boolean {
  if (first === '' && second === '') return false;
  if (first !== '' && second !== '') return first.toLowerCase() !== second.toLowerCase();
  return FACTORS.some((factor) => known === factor * next || next === factor * known);
}

/** What may stand before a number that is said to be a sum. A word would name it: `Day 1 = 12 + 7`. */
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
    return [{ text: clause.trim(), holds: rounds(value, left.slice(number.at), right) }];
  });
}
