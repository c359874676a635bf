// Exact fractions of BigInts, in lowest terms, with a bound on their length.
import type { StepBudget } from './budget.js';

export interface Rational {
  readonly over: bigint;
  /** Positive. */
  readonly under: bigint;
}

/** A value without an exact form: too long, or undefined. */
export class NotExact extends Error {
  override readonly name = 'NotExact';
}

/** About 4,900 decimal digits. */
const MAX_BITS = 16_384;
const SMALL = 1n << 64n;

export const ZERO: Rational = { over: 0n, under: 1n };
export const ONE: Rational = { over: 1n, under: 1n };

export function whole(value: bigint | number): Rational {
  return { over: BigInt(value), under: 1n };
}

/** over / under in lowest terms. Throws {@link NotExact} for a zero denominator and for numbers that are too long. */
export function fraction(over: bigint, under: bigint, budget: StepBudget): Rational {
  if (under === 0n) throw new NotExact('division by zero');
  if (Math.max(bitLength(over), bitLength(under)) > MAX_BITS) throw new NotExact('number too long');
  const divisor = greatestCommonDivisor(over, under, budget);
  const sign = under < 0n ? -1n : 1n;
  return { over: (sign * over) / divisor, under: (sign * under) / divisor };
}

export function add(a: Rational, b: Rational, budget: StepBudget): Rational {
  return fraction(a.over * b.under + b.over * a.under, a.under * b.under, budget);
}

export function multiply(a: Rational, b: Rational, budget: StepBudget): Rational {
  return fraction(a.over * b.over, a.under * b.under, budget);
}

export function inverse(a: Rational, budget: StepBudget): Rational {
  return fraction(a.under, a.over, budget);
}

export function negative(a: Rational): Rational {
  return { over: -a.over, under: a.under };
}

/** a to a whole power. Throws {@link NotExact} before anything long is computed. */
export function power(a: Rational, exponent: number, budget: StepBudget): Rational {
  const size = Math.abs(exponent);
  if (a.over === 0n && exponent <= 0) throw new NotExact('not defined for zero');
  if (isUnit(a.over) && a.under === 1n) return size % 2 === 0 ? { over: a.over * a.over, under: 1n } : a;
  if (Math.max(bitLength(a.over), bitLength(a.under)) * size > MAX_BITS)
    throw new NotExact('number too long');
  budget.spend(size);
  const raised = { over: a.over ** BigInt(size), under: a.under ** BigInt(size) };
  return exponent < 0 ? fraction(raised.under, raised.over, budget) : raised;
}

export function equals(a: Rational, b: Rational): boolean {
  return a.over === b.over && a.under === b.under;
}

export function isZero(a: Rational): boolean {
  return a.over === 0n;
}

/** The whole number; undefined if `a` is not one or is beyond exact doubles. */
export function wholeNumber(a: Rational): number | undefined {
  const value = Number(a.over);
  return a.under === 1n && Number.isSafeInteger(value) ? value : undefined;
}

/** The nearest double, also where numerator or denominator lies beyond the doubles. */
export function toNumber({ over, under }: Rational): number {
  const [top, bottom] = [Number(over), Number(under)];
  if (Number.isFinite(top) && Number.isFinite(bottom)) return top / bottom;
  const shift = bitLength(over) - bitLength(under);
  const scaled = shift >= 0 ? (over << 64n) / (under << BigInt(shift)) : (over << BigInt(64 - shift)) / under;
  return Number(scaled) * 2 ** -64 * 2 ** shift;
}

/** The number of a decimal literal such as `12.50` or `1.5e-3`, without separators of thousands. */
export function parseDecimal(text: string, budget: StepBudget): Rational {
  const [, digits = '', decimals = '', exponent = '0'] =
    /^(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const scale = Number(exponent) - decimals.length;
  if (digits.length + decimals.length + Math.abs(scale) > MAX_BITS / 4) throw new NotExact('number too long');
  budget.spend(1 + ((digits.length + decimals.length) >> 4));
  const value = BigInt(digits + decimals);
  const unit = 10n ** BigInt(Math.abs(scale));
  return scale >= 0 ? whole(value * unit) : fraction(value, unit, budget);
}

/** Up to a few bits above. */
function bitLength(value: bigint): number {
  const size = value < 0n ? -value : value;
  return size < SMALL ? 1 + Math.ceil(Math.log2(Number(size) + 1)) : 4 * size.toString(16).length;
}

/** Machine words of a number. */
function words(value: bigint): number {
  return Math.ceil(bitLength(value) / 64);
}

function isUnit(value: bigint): boolean {
  return value === 0n || value === 1n || value === -1n;
}

/** Euclid's algorithm; the result is never negative. */
export function greatestCommonDivisor(a: bigint, b: bigint, budget: StepBudget): bigint {
  budget.spend(words(a) * words(b));
  let [x, y] = [a < 0n ? -a : a, b < 0n ? -b : b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}
