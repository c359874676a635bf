// Units of measure, money, percent and counted things, each in base units.

import type { StepBudget } from './budget.js';
import { fraction, multiply, ONE, power, type Rational } from './rational.js';

/** A unit as a factor times base units; `apple` is its own base unit. */
export interface Unit {
  readonly factor: Rational;
  /** A degree is π/180. */
  readonly pi: boolean;
  readonly bases: ReadonlyMap<string, number>;
}

type Definition = readonly [base: string, over: number, under: number, power?: number];

const DEFINITIONS = new Map<string, Definition>();

function define(names: string, base: string, over: number, under = 1, power = 1): void {
  for (const name of names.split(' ')) DEFINITIONS.set(name, [base, over, under, power]);
}

const NUMBER_WORDS = new Map([
  ['dozen', 12],
  ['hundred', 100],
  ['thousand', 1e3],
  ['million', 1e6],
  ['billion', 1e9],
  ['trillion', 1e12],
]);

define('m meter meters metre metres', 'm', 1);
define('km kilometer kilometers kilometre kilometres', 'm', 1000);
define('cm centimeter centimeters centimetre centimetres', 'm', 1, 100);
define('mm millimeter millimeters millimetre millimetres', 'm', 1, 1000);
define('in inch inches', 'm', 254, 10000);
define('ft foot feet', 'm', 3048, 10000);
define('yd yard yards', 'm', 9144, 10000);
define('mi mile miles', 'm', 1609344, 1000);
define('g gram grams', 'g', 1);
define('kg kilogram kilograms kilo kilos', 'g', 1000);
define('mg milligram milligrams', 'g', 1, 1000);
define('lb lbs pound pounds', 'g', 45359237, 100000);
define('oz ounce ounces', 'g', 45359237, 1600000);
define('s sec secs second seconds', 's', 1);
define('min mins minute minutes', 's', 60);
define('h hr hrs hour hours', 's', 3600);
define('day days', 's', 86400);
define('week weeks', 's', 604800);
define('month months', 'month', 1);
define('year years yr yrs', 'month', 12);
define('l liter liters litre litres', 'm', 1, 1000, 3);
define('ml milliliter milliliters millilitre millilitres', 'm', 1, 1000000, 3);
define('dollar dollars usd', 'dollar', 1);
define('cent cents', 'dollar', 1, 100);
define('euro euros eur', 'euro', 1);
define('percent pct percentage', '', 1, 100);
define('degree degrees deg', '', 1, 180);
define('radian radians rad', '', 1);
const FRACTION_WORDS = 'half halves thirds fourths fifths sixths sevenths eighths ninths tenths'.split(' ');
for (const [i, name] of FRACTION_WORDS.entries()) define(name, '', 1, Math.max(2, i + 1));
define('hundredths', '', 1, 100);
define('thousandths', '', 1, 1000);
for (const [name, value] of NUMBER_WORDS) define(`${name} ${name}s`, '', value);
const SIGNS: ReadonlyMap<string, string> = new Map([
  ['$', 'dollar'],
  ['%', 'percent'],
  ['€', 'euro'],
  ['£', 'pound-sterling'],
  ['¥', 'yen'],
  ['₹', 'rupee'],
  ['L', 'l'],
  ['mL', 'ml'],
]);
const RATES: ReadonlyMap<string, string> = new Map([
  ['mph', 'mile per hour'],
  ['kph', 'km per hour'],
  ['kmh', 'km per hour'],
]);
const SMALL_WORDS = new Set(['of', 'the', 'a', 'an', 'in', 'total', 'approximately', 'whole']);

/** A sign that is a unit, such as `$` or `%`. */
export function isUnitSign(sign: string): boolean {
  return SIGNS.has(sign);
}

/** Whether letters on their own name a unit of measure. */
export function isUnitName(name: string): boolean {
  return DEFINITIONS.has(name.toLowerCase()) || SIGNS.has(name) || RATES.has(name);
}

const UNIT = String.raw`([a-zA-Z]{1,3})(\^(?:[23]|\{[23]\}|\{?-[1-3]\}?))?`;
const LAST_UNITS = new RegExp(
  String.raw`(?<=[\d)}]|\\pi) ${UNIT}(?:\s?([/ ])\s?${UNIT})?(?=$| [\d.]+ [a-zA-Z]{1,7}$)`,
  'g',
);

/** The answer with the units of measure that it ends with marked as words: `5 m`, `3 \cdot 10^{8} m/s`, `9.8 m s^{-2}`. */
export function withUnitLetters(answer: string): string {
  return answer.replace(
    LAST_UNITS,
    (all, unit: string, power = '', sign = '', second?: string, last = '') => {
      if (!isUnitName(unit) || unit === 'in' || (second !== undefined && !isUnitName(second))) return all;
      const rest = second === undefined ? '' : `${sign.trim()}\\text{${second}}${last}`;
      return ` \\text{${unit}}${power}${rest}`;
    },
  );
}

/** Units as written after a number: `cm`, `square inches`, `miles per hour`, `km/h`, `red apples`. */
export function unitOf(words: string, budget: StepBudget): Unit {
  let factor = ONE;
  let pi = false;
  const bases = new Map<string, number>();
  let direction = 1;
  let exponent = 1;
  const noun: string[] = [];
  const parts = words
    .replace(/\//g, ' per ')
    .replace(/[.,'-]/g, ' ')
    .trim()
    .split(/\s+/);
  for (const part of parts.flatMap((word) => (RATES.get(word.toLowerCase()) ?? word).split(' '))) {
    budget.spend();
    const name = SIGNS.get(part) ?? part.toLowerCase();
    if (name === 'per' || name === 'an' || name === 'each') direction = name === 'per' ? -1 : direction;
    else if (name === 'square' || name === 'sq' || name === 'squared') exponent = 2;
    else if (name === 'cubic' || name === 'cu' || name === 'cubed') exponent = 3;
    else if (name !== '' && (parts.length === 1 || !SMALL_WORDS.has(name))) {
      const definition = DEFINITIONS.get(name);
      if (definition === undefined) noun.push(direction < 0 ? `per ${singular(name)}` : singular(name));
      else {
        const [base, over, under, dimension = 1] = definition;
        const times = direction * exponent;
        factor = multiply(
          factor,
          power(fraction(BigInt(over), BigInt(under), budget), times, budget),
          budget,
        );
        pi ||= name.startsWith('deg');
        if (base !== '') bases.set(base, (bases.get(base) ?? 0) + times * dimension);
      }
      exponent = 1;
    }
  }
  if (noun.length > 0) bases.set(noun.join(' '), 1);
  return { factor, pi, bases };
}

/** How many times the second unit goes into the first, of one kind and larger: 12 for feet and inches. Else undefined. */
export function partOfUnit(whole: string, part: string, budget: StepBudget): Rational | undefined {
  const [first, second] = [unitOf(whole, budget), unitOf(part, budget)];
  const [[base, exponent] = []] = first.bases;
  const isOne = first.bases.size === 1 && second.bases.size === 1 && !first.pi && !second.pi;
  if (base === undefined || !isOne || second.bases.get(base) !== exponent) return undefined;
  const { over, under } = second.factor;
  const times = multiply(first.factor, { over: under, under: over }, budget);
  return times.over > times.under ? times : undefined;
}

/** Whether the words are percent alone, which a bare number may mean too. */
export function isPercent(words: string): boolean {
  const name = SIGNS.get(words.trim()) ?? words.trim().toLowerCase();
  return name === 'percent' || name === 'pct' || name === 'percentage' || name === '%';
}

/** Words after a number that make it another one, and are no unit to leave out: `2 thirds`. */
export function changesNumber(words: string): boolean {
  return /\b(?:half|halves|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s|factorial)\b/i.test(
    words,
  );
}

/**
 * The product of number words, and whether they are the only words. A dozen eggs is twelve eggs, and a million is a
 * number: such words are part of the number, not a unit that may be left out.
 */
export function numberWords(words: string): { readonly value: number; readonly alone: boolean } {
  const parts = words
    .toLowerCase()
    .split(/[^\p{L}]+/u)
    .filter((part) => part !== '');
  const values = parts.map((part) => NUMBER_WORDS.get(part) ?? NUMBER_WORDS.get(part.replace(/s$/, '')));
  return {
    value: values.reduce<number>((product, value) => product * (value ?? 1), 1),
    alone: parts.length > 0 && values.every((value) => value !== undefined),
  };
}

function singular(noun: string): string {
  return noun.length > 3 ? noun.replace(/(?<=[^s])s$/, '') : noun;
}
