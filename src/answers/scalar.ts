// Whether two expressions have the same value.
import { power } from '../native/elementary.js';
import type { Algebra } from './algebra.js';
import type { Polynomial, Ratio, Term } from './polynomial.js';
import { equals, greatestCommonDivisor, multiply, NotExact, type Rational, toNumber } from './rational.js';
import { isZeroAtSamples, realValue } from './sampling.js';
import type { Node } from './syntax.js';

/** The comparison that decided, from the strongest to the weakest. */
export type ScalarMethod = 'exact' | 'numeric' | 'rounded';

export function ratioOf(algebra: Algebra, node: Node): Ratio | undefined {
  try {
    return algebra.value(node);
  } catch (error) {
    if (error instanceof NotExact) return undefined;
    throw error;
  }
}

/**
 * The comparison by which the values are equal, or undefined. A decimal of at least `digits` significant digits equals
 * a value that has no such decimal if it is that value rounded or cut off.
 */
export function sameValue(algebra: Algebra, a: Node, b: Node, digits: number): ScalarMethod | undefined {
  const [left, right] = [ratioOf(algebra, a), ratioOf(algebra, b)];
  if (left === undefined || right === undefined) return undefined;
  const same = sameRatio(algebra, left, right);
  if (same !== undefined) return same;
  const isRounded = isRoundingOf(algebra, a, right, b, digits) || isRoundingOf(algebra, b, left, a, digits);
  return isRounded ? 'rounded' : undefined;
}

export function sameRatio(algebra: Algebra, a: Ratio, b: Ratio): ScalarMethod | undefined {
  try {
    const difference = algebra.subtract(a, b);
    if (difference.over.size === 0) return 'exact';
    if (isDecided(algebra, difference.over)) return undefined;
    return isZeroAtSamples(algebra, difference) ? 'numeric' : undefined;
  } catch (error) {
    // The coefficients are too long.
    if (error instanceof NotExact) return undefined;
    throw error;
  }
}

/**
 * Whether a polynomial that is not zero term by term cannot be zero at all: without functions, roots of one prime index of
 * numbers without a common divisor are independent over the rational numbers (Besicovitch 1940).
 */
function isDecided(algebra: Algebra, polynomial: Polynomial): boolean {
  const radicals = new Map<number, { readonly index: number; readonly radicand: bigint }>();
  for (const { powers } of polynomial.values()) {
    for (const [id] of powers) {
      const { kind, index = 2, radicand = 1n } = algebra.polynomials.atom(id);
      if (kind === 'function') return false;
      if (kind === 'radical') radicals.set(id, { index, radicand });
    }
  }
  const roots = [...radicals.values()];
  const divisor = (x: bigint, y: bigint) => greatestCommonDivisor(x, y, algebra.budget);
  return roots.every(
    ({ index, radicand }, i) =>
      index === roots[0]!.index &&
      [2, 3, 5, 7].includes(index) &&
      roots.slice(i + 1).every((other) => divisor(radicand, other.radicand) === 1n),
  );
}

/**
 * The rational number by which a polynomial must be multiplied to give the other, both cleared of negative exponents; undefined
 * where there is none. So two equations `a = 0` and `b = 0` say the same.
 */
export function proportion(algebra: Algebra, a: Polynomial, b: Polynomial): Rational | undefined {
  const [left, right] = [cleared(algebra, a), cleared(algebra, b)];
  if (left.size !== right.size || left.size === 0) return undefined;
  let factor: Rational | undefined;
  for (const [key, { coefficient }] of left) {
    const other = right.get(key)?.coefficient;
    if (other === undefined) return undefined;
    const { budget } = algebra;
    factor ??= multiply(
      other,
      { over: signed(coefficient, coefficient.under), under: size(coefficient.over) },
      budget,
    );
    if (!equals(multiply(coefficient, factor, budget), other)) return undefined;
  }
  return factor;
}

const size = (value: bigint) => (value < 0n ? -value : value);
const signed = (of: Rational, value: bigint) => (of.over < 0n ? -value : value);

function cleared(algebra: Algebra, polynomial: Polynomial): Polynomial {
  const lowest = new Map<number, number>();
  for (const { powers } of polynomial.values())
    for (const [atom, exponent] of powers) lowest.set(atom, Math.min(exponent, lowest.get(atom) ?? 0));
  const clears = [...lowest].filter(([, exponent]) => exponent < 0).sort(([a], [b]) => a - b);
  if (clears.length === 0) return polynomial;
  const powers: Term['powers'] = clears.map(([atom, exponent]) => [atom, -exponent] as const);
  const factor = algebra.polynomials.ofTerms([{ coefficient: { over: 1n, under: 1n }, powers }]);
  return algebra.polynomials.multiply(polynomial, factor);
}

/** Digits that every f64 keeps; a decimal with so many was printed by a program. */
const F64_DIGITS = 15;
/** Relative error of a computed f64 from the nearest one: 0.1 + 0.2 is printed as 0.30000000000000004. */
const F64_ERROR = 2 * Number.EPSILON;
/** A number of at most so many digits is not itself a printed f64. */
const SHORT = 12;

function isRoundingOf(algebra: Algebra, a: Node, exact: Ratio, b: Node, digits: number): boolean {
  const decimal = decimalOf(a);
  if (decimal === undefined || decimal.significant < digits) return false;
  const { significant, places } = decimal;
  const [value, written] = [realValue(algebra, exact), ratioOf(algebra, a)];
  const rational = written === undefined ? undefined : algebra.rational(written);
  if (value === undefined || rational === undefined) return false;
  const shown = toNumber(rational);
  const other = writtenDigits(b);
  if (significant >= F64_DIGITS && (other === undefined || other <= SHORT)) {
    if (Math.abs(shown - value) <= F64_ERROR * Math.abs(value)) return true;
  }
  if (other !== undefined || significant > F64_DIGITS || shown < 0 !== value < 0) return false;
  const unit = power(10, -places);
  const beyond = (Math.abs(value) - Math.abs(shown)) / unit;
  return beyond > -0.5 && beyond < 1;
}

/** Significant digits and decimal places of a number with a decimal point, such as `0.3333` and `3.5e-05`. */
function decimalOf(node: Node): { readonly significant: number; readonly places: number } | undefined {
  if (node.kind === 'negative') return decimalOf(node.of);
  const parts = node.kind === 'number' ? /^(\d*)\.(\d+)(?:[eE]([+-]?\d+))?$/.exec(node.text) : null;
  if (parts === null) return undefined;
  const [, whole = '', decimals = '', exponent = '0'] = parts;
  return {
    significant: (whole + decimals).replace(/^0+/, '').length,
    places: decimals.length - Number(exponent),
  };
}

/** The digits of a number that is written as one; undefined for anything that is computed. */
function writtenDigits(node: Node): number | undefined {
  if (node.kind === 'negative') return writtenDigits(node.of);
  if (node.kind !== 'number' || (node.text === '' && node.value.under !== 1n)) return undefined;
  return node.text
    .replace(/[eE].*$/, '')
    .replace(/\D/g, '')
    .replace(/^0+/, '').length;
}
