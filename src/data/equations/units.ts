/** Names of units that are turned into each other. */

interface Family {
  readonly units: readonly RegExp[];
  /** How many of one are another; any, where a name is a factor itself: `2 dozen + 3 = 27`. */
  readonly factors: readonly number[] | 'any';
}

const family = (units: readonly string[], factors: Family['factors']): Family => ({
  units: units.map((forms) => new RegExp(String.raw`(?<![\p{L}'’])(?:${forms})(?!\p{L})`, 'iu')),
  factors,
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
    ['mg|milligrams?', 'g|grams?', 'kg|kilos?|kilograms?', 't|tons?|tonnes?', 'oz|ounces?', 'lbs?|pounds?'],
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
  ),
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

const RATE = /(?:\/\s?|(?<!\p{L})per\s)\p{L}+/giu;

const isNear = (a: number, b: number) => Math.abs(a - b) <= 1e-9 * b;
