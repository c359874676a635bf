/**
 * Elementary functions whose bits no engine chooses: `**`, Math.exp, Math.log, Math.cos and the like differ between Node's versions, Bun
 * and Deno. These are made of + − × ÷ and √ alone, which IEEE 754 fixes. Unless said otherwise they are within 0.7 units in the last place.
 */

/** ln 2 and π/2 in parts, so short that whole multiples of all but the last are exact. */
const LN2 = [0.6931471803691238, 1.9082149292705877e-10] as const;
const HALF_PI = [
  1.5707963109016418, 1.5893254712295857e-8, 6.123233601181349e-17, 3.9455541665632055e-24,
] as const;

const double = new Float64Array(1);
const words = new Uint32Array(double.buffer);

/** The part that rounding took from the last result of a function below that says so. */
let rest = 0;

/** e^x. */
export const exp = (x: number): number => expOf(x, 0);

/** ln x; NaN below 0. */
export function log(x: number): number {
  if (!(x > 0) || x === Infinity) return x === 0 ? -Infinity : x === Infinity ? x : Number.NaN;
  return logarithm(x);
}

/** ln(1 + x), within two units. */
export function log1p(x: number): number {
  const sum = 1 + x;
  return sum === 1 || sum === Infinity ? x : (log(sum) * x) / (sum - 1);
}

/** x · x. */
export const square = (x: number): number => x * x;

/** x^y, as `**` defines its special cases. */
export function power(x: number, y: number): number {
  // Exact cases, which are the same everywhere.
  if (x === 0 || y === 0 || x === 1 || !Number.isFinite(x) || !Number.isFinite(y)) return x ** y;
  const isWhole = Number.isInteger(y);
  if (x < 0 && !isWhole) return Number.NaN;
  const size = logarithm(Math.abs(x));
  const sign = x < 0 && Math.abs(y) % 2 === 1 ? -1 : 1;
  if (isWhole && Math.abs(y) <= MULTIPLIED && Math.abs(size * y) < 600)
    return sign * multiplied(Math.abs(x), y);
  const low = rest;
  const product = size * y;
  return sign * expOf(product, productRest(size, y, product) + low * y);
}

/** The cosine, within a unit; of an angle beyond 2^27 as the engine has it. */
export function cos(x: number): number {
  if (!(Math.abs(x) < LARGEST_ANGLE)) return Math.cos(x);
  const quarters = Math.floor(x / (Math.PI / 2) + 0.5);
  const angle = reduced(x, quarters);
  const turned = quarters % 2 === 0 ? cosineNear(angle, rest) : sineNear(angle, rest);
  return quarters % 4 === 0 || (quarters + 1) % 4 === 0 ? turned : -turned;
}

/** The sine, likewise. */
export function sin(x: number): number {
  if (!(Math.abs(x) < LARGEST_ANGLE)) return Math.sin(x);
  const quarters = Math.floor(x / (Math.PI / 2) + 0.5);
  if (quarters === 0) return sineNear(x, 0);
  const angle = reduced(x, quarters);
  const turned = quarters % 2 === 0 ? sineNear(angle, rest) : cosineNear(angle, rest);
  return quarters % 4 === 0 || (quarters - 1) % 4 === 0 ? turned : -turned;
}

/** The angle whose tangent is x, within three units. */
export function atan(x: number): number {
  const size = Math.abs(x);
  if (Number.isNaN(size) || size < 1e-9) return x;
  const angle = size > 1 ? Math.PI / 2 - acute(1 / size) : acute(size);
  return x < 0 ? -angle : angle;
}

/** The angle of the point (x, y), within three units. */
export function atan2(y: number, x: number): number {
  if (x === 0 || y === 0 || !Number.isFinite(x) || !Number.isFinite(y)) return Math.atan2(y, x);
  const angle = atan(y / x);
  if (x > 0) return angle;
  return y > 0 ? angle + Math.PI : angle - Math.PI;
}

/** The angle whose sine is x, within four units. */
export const asin = (x: number): number => atan2(x, Math.sqrt((1 - x) * (1 + x)));

/** The hyperbolic sine, within two units. */
export function sinh(x: number): number {
  if (!(Math.abs(x) < 0.5)) return (exp(x) - exp(-x)) / 2;
  const z = x * x;
  return x + x * z * series(z, SINH);
}

/** The hyperbolic cosine, within two units. */
export const cosh = (x: number): number => (exp(x) + exp(-x)) / 2;

/** √(x² + y²), within two units. */
export function hypot(x: number, y: number): number {
  const [large, small] = [Math.max(Math.abs(x), Math.abs(y)), Math.min(Math.abs(x), Math.abs(y))];
  return small === 0 || large === Infinity ? large : large * Math.sqrt(1 + square(small / large));
}

/** Coefficients from the last one back; c[0] is that of z⁰. */
function series(z: number, coefficients: readonly number[]): number {
  let sum = 0;
  for (let i = coefficients.length - 1; i >= 0; i--) sum = sum * z + (coefficients[i] as number);
  return sum;
}

/** 1/first!, 1/(first + every)!, … with alternating signs if `sign` is −1. */
function reciprocals(first: number, every: number, count: number, sign = 1): readonly number[] {
  let [factorial, at] = [1, 1];
  return Array.from({ length: count }, (_, i) => {
    for (; at <= first + every * i; at++) factorial *= at;
    return (i % 2 === 1 ? sign : 1) / factorial;
  });
}

const odd = (count: number, sign = 1): readonly number[] =>
  Array.from({ length: count }, (_, i) => (i % 2 === 1 ? sign : 1) / (2 * i + 3));

const EXP = reciprocals(2, 1, 14);
const SINH = reciprocals(3, 2, 7);
/** The series of −sin and of cos behind their first terms. */
const SIN = reciprocals(3, 2, 8, -1);
const COS = reciprocals(4, 2, 8, -1);
const ATANH = odd(12);
const ATAN = odd(14, -1);

/** Splits a double into halves, whose products are exact (Dekker 1971). */
const HALVES = 2 ** 27 + 1;

/** a · b − product, exactly, where `product` is a · b rounded. */
function productRest(a: number, b: number, product: number): number {
  const [wideA, wideB] = [HALVES * a, HALVES * b];
  const [highA, highB] = [wideA - (wideA - a), wideB - (wideB - b)];
  const [lowA, lowB] = [a - highA, b - highB];
  return lowA * lowB - (product - highA * highB - lowA * highB - highA * lowB);
}

/** ln x of a finite x above 0; `rest` is what the result, rounded, leaves. */
function logarithm(x: number): number {
  const isSmall = x < 2 ** -1022;
  double[0] = isSmall ? x * 2 ** 54 : x;
  const top = words[1] as number;
  words[1] = (top & 0xfffff) | 0x3ff00000;
  let exponent = (top >>> 20) - 1023 - (isSmall ? 54 : 0);
  let mantissa = double[0] as number;
  if (mantissa > Math.SQRT2) {
    mantissa /= 2;
    exponent++;
  }
  // ln m = 2 artanh s with s = (m − 1) / (m + 1), in two parts.
  const above = mantissa - 1;
  const sum = mantissa + 1;
  const s = above / sum;
  const product = s * sum;
  const left = above - product - productRest(s, sum, product) - s * (above - (sum - 2));
  const z = s * s;
  const tail = 2 * (s * z * series(z, ATANH) + left / sum);
  const whole = exponent * LN2[0];
  const high = whole + 2 * s;
  const lost = exponent === 0 ? 0 : 2 * s - (high - whole);
  const low = tail + exponent * LN2[1] + lost;
  const result = high + low;
  rest = low - (result - high);
  return result;
}

/** e^(x + low). */
function expOf(x: number, low: number): number {
  if (!(x < 709.79)) return Number.isNaN(x) ? x : Infinity;
  if (x < -745.2) return 0;
  const exponent = Math.floor(x / Math.LN2 + 0.5);
  const first = x - exponent * LN2[0];
  const second = exponent * LN2[1];
  const r = first - second;
  const lost = first - r - second + low;
  const beyond = r * r * series(r, EXP) + lost * (1 + r);
  const sum = 1 + r;
  const value = sum + (r - (sum - 1) + beyond);
  return scaled(value, exponent);
}

/** value · 2^exponent, rounded once. */
function scaled(value: number, exponent: number): number {
  if (exponent > 1000) return value * twoTo(1000) * twoTo(exponent - 1000);
  return exponent < -1000 ? value * twoTo(exponent + 200) * twoTo(-200) : value * twoTo(exponent);
}

function twoTo(exponent: number): number {
  words[0] = 0;
  words[1] = (exponent + 1023) << 20;
  return double[0] as number;
}

/** Up to here a whole power is multiplied out, in twice the digits. */
const MULTIPLIED = 64;

function multiplied(x: number, y: number): number {
  let [high, low] = [1, 0];
  for (let i = 0; i < Math.abs(y); i++) {
    const product = high * x;
    const lost = productRest(high, x, product) + low * x;
    high = product + lost;
    low = lost - (high - product);
  }
  if (y > 0) return high;
  const quotient = 1 / high;
  const product = quotient * high;
  return quotient + (1 - product - productRest(quotient, high, product) - quotient * low) / high;
}

const LARGEST_ANGLE = 2 ** 27;

/** x − quarters · π/2; `rest` is what the result, rounded, leaves. */
function reduced(x: number, quarters: number): number {
  const first = x - quarters * HALF_PI[0];
  const second = -quarters * HALF_PI[1];
  const high = first + second;
  const of = high - first;
  const third = -quarters * HALF_PI[2];
  const sum = high + third;
  const ofThird = sum - high;
  const lost = first - (high - of) + (second - of) + (high - (sum - ofThird) + (third - ofThird));
  const low = lost - quarters * HALF_PI[3];
  const result = sum + low;
  rest = low - (result - sum);
  return result;
}

/** sin(x + low) for |x| up to π/4. */
function sineNear(x: number, low: number): number {
  const z = x * x;
  return x + (low * (1 - z / 2) - x * z * series(z, SIN));
}

/** cos(x + low), likewise. */
function cosineNear(x: number, low: number): number {
  const z = x * x;
  const half = z / 2;
  const most = 1 - half;
  return most + (1 - most - half + (z * z * series(z, COS) - x * low));
}

/** The angle of a tangent from 0 to 1: a quarter of it, four times. */
function acute(x: number): number {
  const half = x / (1 + Math.sqrt(1 + x * x));
  const quarter = half / (1 + Math.sqrt(1 + half * half));
  const z = quarter * quarter;
  return 4 * (quarter - quarter * z * series(z, ATAN));
}
