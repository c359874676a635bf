/** Names of units that are turned into each other. */
import { toNumber } from '../../answers/rational.js';
import { numbersIn } from './expression.js';

interface Family {
  readonly units: readonly RegExp[];
  /** Factors to other units of the family; `any`, where a name is a factor itself: `2 dozen + 3 = 27`. */
  readonly factors: readonly number[] | 'any';
  /** Whether a product may have two of them: hours (of a day) are multiplied by days, and coins are counted. */
  readonly multiplied: boolean;
}

const family = (units: readonly string[], factors: Family['factors'], multiplied = false): Family => ({
  factors,
  multiplied,
  units: units.map((forms) => new RegExp(String.raw`(?<![\p{L}'’])(?:${forms})(?!\p{L})`, 'iu')),
});

/** `in` behind a number is no unit before a word, `4 in total`; `5' 10"` are feet and inches. */
const INCHES = String.raw`inch(?:es)?|(?<=\d\s?)in(?!\s+(?!(?:x|per)\s)\p{L})|(?<=\d)["″”]`;

/** Time, lengths, weights, volumes, money, and large numbers in words. */
const FAMILIES: readonly Family[] = [
  family(
    [
      's|secs?|seconds?',
      'mins?|minutes?',
      'h|hrs?|hours?',
      'days?',
      'weeks?',
      'months?',
      'yrs?|years?',
      'decades?',
    ],
    [7, 12, 24, 30, 52, 60, 365, 1440, 3600],
    true,
  ),
  family(
    [
      'mm|millimet(?:er|re)s?',
      'cm|centimet(?:er|re)s?',
      'm|met(?:er|re)s?',
      'km|kilomet(?:er|re)s?',
      INCHES,
      String.raw`ft|foot|feet|(?<=\d)['′’]`,
      'yds?|yards?',
      'mi|miles?',
    ],
    [12, 36, 100, 1000, 1760, 5280],
  ),
  family(
    ['mg|milligrams?', 'g|grams?', 'kgs?|kilos?|kilograms?', 't|tons?|tonnes?', 'oz|ounces?', 'lbs?|pounds?'],
    [16, 1000, 2000],
  ),
  family(
    [
      'ml|millilit(?:er|re)s?',
      'cl|centilit(?:er|re)s?',
      'l|lit(?:er|re)s?',
      'oz|ounces?',
      'cups?',
      'pints?',
      'quarts?',
      'gallons?',
    ],
    [4, 8, 16, 100, 128, 1000],
  ),
  family(
    [
      String.raw`\$|dollars?|bucks?|euros?|pounds?`,
      'cents?|penn(?:y|ies)|pence',
      'nickels?',
      'dimes?',
      'quarters?',
    ],
    [100],
    true,
  ),
  family(['bytes?', 'kb|kilobytes?', 'mb|megabytes?', 'gb|gigabytes?', 'tb|terabytes?'], [8, 1000, 1024]),
  // Units of speed and work, which nobody converts.
  family(['mph', 'kph|kmh', 'kwh', 'kw', 'k?cal'], []),
  family(['dozens?', 'hundreds?', 'thousands?|k', 'millions?', 'billions?', 'trillions?'], 'any'),
];

export const isUnit = (name: string): boolean =>
  FAMILIES.some(({ units }) => units.some((unit) => unit.test(name)));

/**
 * Whether a calculation may be one in two units, by their names: `1 kg - 350 g = 650 g`. One name is enough where the other side has none
 * and is larger or smaller by as much as units are, `30 + 30 = 1 hour`. Those of rates cancel: `4 hours * 60 minutes/hour = 250 minutes` has
 * one.
 *
 * @param ratio of the value to the printed result
 */
export function hasTwoUnits(computed: string, result: string, ratio: number): boolean {
  const rates = [...`${computed}=${result}`.matchAll(RATE)].map(([rate]) => rate);
  return FAMILIES.some(({ units, factors }) => {
    const own = units.filter((unit) => !rates.some((rate) => unit.test(rate)));
    const [left, right] = [computed, result].map((text) => own.filter((unit) => unit.test(text)));
    const names = new Set([...(left ?? []), ...(right ?? [])]);
    if (names.size !== 1) return names.size > 1;
    const isOnBothSides = left?.length === right?.length;
    if (isOnBothSides || factors === 'any') return !isOnBothSides;
    return factors.some((factor) => isNear(ratio, factor) || isNear(ratio, 1 / factor));
  });
}

/**
 * Whether an expression has two units of one kind, as sums that come out by chance have: `2 ft + 10 in`, `2 ft × 3 in`,
 * and `20 min + 30 min = 50 hours`. A term may be converted by a factor of the units, `2 hours * 60 + 30 minutes`.
 */
export function mixesUnits(computed: string, result: string): boolean {
  const terms = computed.split(/(?<=[\p{L}\d%.)"″”'′’]\s*)[-+−–](?=\s*[-−–($\d.])/u);
  return FAMILIES.some(({ units, factors, multiplied }) => {
    const named = [...terms, result].map((term) => units.filter((unit) => unit.test(term.replace(RATE, ''))));
    // A quotient may be a rate: `3 feet / 1 yard`.
    if (terms.length === 1 && (multiplied || /[/÷]|(?<!\p{L})per(?!\p{L})/u.test(computed))) return false;
    const first = named[0]?.length;
    if (factors === 'any') return named.slice(0, -1).some(({ length }) => length !== first);
    const isTurned = (term: string) =>
      /[*×÷/x]/.test(term) && numbersIn(term).some(({ value }) => factors.includes(toNumber(value)));
    const known = named.filter(
      (own, i) => !isTurned(terms[i] ?? '') && (own.length === 1 || terms.length === 1),
    );
    return new Set(known.flat()).size > 1;
  });
}

/** Whether a sum begins within a quantity of two units: `3 h 20 min + 10 min`. */
export function isCompound(before: string, computed: string): boolean {
  const first = /^\d[\d.,]*\s?(?:\p{L}+|["″”])/u.exec(computed)?.[0];
  const last = /\d\s?(?:\p{L}+|['′’])(?=\s*(?:and\s*)?$)/u.exec(before)?.[0];
  if (first === undefined || last === undefined) return false;
  return FAMILIES.some(({ units }) => {
    const [own, other] = [first, last].map((text) => units.findIndex((unit) => unit.test(text)));
    return own !== -1 && other !== -1 && own !== other;
  });
}

const RATE = /(?:\/\s?|(?<!\p{L})per\s)\p{L}+/giu;

const isNear = (a: number, b: number) => Math.abs(a - b) <= 1e-9 * b;
