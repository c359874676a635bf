// Complex numbers in doubles, principal branches, for sampling.
import * as elementary from '../native/elementary.js';

export interface Complex {
  readonly re: number;
  readonly im: number;
}

export const real = (re: number): Complex => ({ re, im: 0 });
export const NOT_DEFINED: Complex = real(Number.NaN);
const I: Complex = { re: 0, im: 1 };

export function add(a: Complex, b: Complex): Complex {
  return { re: a.re + b.re, im: a.im + b.im };
}

export function multiply(a: Complex, b: Complex): Complex {
  if (a.im === 0 && b.im === 0) return real(a.re * b.re);
  return { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
}

export function divide(a: Complex, b: Complex): Complex {
  if (a.im === 0 && b.im === 0) return real(a.re / b.re);
  const size = b.re * b.re + b.im * b.im;
  return { re: (a.re * b.re + a.im * b.im) / size, im: (a.im * b.re - a.re * b.im) / size };
}

export function size(a: Complex): number {
  return elementary.hypot(a.re, a.im);
}

export function isFiniteNumber(a: Complex): boolean {
  return Number.isFinite(a.re) && Number.isFinite(a.im);
}

export function power(a: Complex, b: Complex): Complex {
  const isReal = a.im === 0 && b.im === 0;
  if (isReal && (a.re >= 0 || Number.isInteger(b.re))) return real(elementary.power(a.re, b.re));
  if (b.im === 0 && Number.isInteger(b.re) && Math.abs(b.re) <= 64) return wholePower(a, b.re);
  return exp(multiply(b, ln(a)));
}

function wholePower(a: Complex, exponent: number): Complex {
  let result = real(1);
  for (let i = 0; i < Math.abs(exponent); i++) result = multiply(result, a);
  return exponent < 0 ? divide(real(1), result) : result;
}

/** The real root of a negative number where the index is odd, as in school. */
export function root(a: Complex, index: number): Complex {
  if (a.im === 0 && a.re < 0 && index % 2 === 1) return real(-elementary.power(-a.re, 1 / index));
  if (index === 2 && a.im === 0) return a.re >= 0 ? real(Math.sqrt(a.re)) : { re: 0, im: Math.sqrt(-a.re) };
  return power(a, real(1 / index));
}

export function exp(a: Complex): Complex {
  const scale = elementary.exp(a.re);
  return a.im === 0 ? real(scale) : { re: scale * elementary.cos(a.im), im: scale * elementary.sin(a.im) };
}

export function ln(a: Complex): Complex {
  return { re: elementary.log(size(a)), im: a.im === 0 && a.re >= 0 ? 0 : elementary.atan2(a.im, a.re) };
}

/** Zero for a sine or cosine that differs from it by no more than the angle is rounded: cos(π/2) in doubles is 6e-17. */
function atZero(value: number, angle: number): number {
  const turn = Math.abs(angle);
  return turn > 1 && Math.abs(value) < 2 * Number.EPSILON * turn ? 0 : value;
}

function sin(a: Complex): Complex {
  if (a.im === 0) return real(atZero(elementary.sin(a.re), a.re));
  return {
    re: elementary.sin(a.re) * elementary.cosh(a.im),
    im: elementary.cos(a.re) * elementary.sinh(a.im),
  };
}

function cos(a: Complex): Complex {
  if (a.im === 0) return real(atZero(elementary.cos(a.re), a.re));
  return {
    re: elementary.cos(a.re) * elementary.cosh(a.im),
    im: -elementary.sin(a.re) * elementary.sinh(a.im),
  };
}

function arcsin(a: Complex): Complex {
  if (a.im === 0 && Math.abs(a.re) <= 1) return real(elementary.asin(a.re));
  const inside = root(add(real(1), multiply(real(-1), multiply(a, a))), 2);
  return multiply({ re: 0, im: -1 }, ln(add(multiply(I, a), inside)));
}

function arctan(a: Complex): Complex {
  if (a.im === 0) return real(elementary.atan(a.re));
  const turned = multiply(I, a);
  const [below, above] = [add(real(1), multiply(real(-1), turned)), add(real(1), turned)];
  return multiply({ re: 0, im: 0.5 }, add(ln(below), multiply(real(-1), ln(above))));
}

const ofReal = (compute: (a: number) => number) => (a: Complex) =>
  a.im === 0 ? real(compute(a.re)) : NOT_DEFINED;

/** Functions of one argument that sampling knows. */
export const FUNCTION_VALUES: ReadonlyMap<string, (a: Complex) => Complex> = new Map([
  ['sin', sin],
  ['cos', cos],
  ['arcsin', arcsin],
  ['arccos', (a) => add(real(Math.PI / 2), multiply(real(-1), arcsin(a)))],
  ['arctan', arctan],
  ['sinh', (a) => multiply(real(0.5), add(exp(a), multiply(real(-1), exp(multiply(real(-1), a)))))],
  ['cosh', (a) => multiply(real(0.5), add(exp(a), exp(multiply(real(-1), a))))],
  ['ln', ln],
  ['log', (a) => multiply(real(Math.LOG10E), ln(a))],
  ['abs', (a) => real(size(a))],
  ['floor', ofReal(Math.floor)],
  ['ceil', ofReal(Math.ceil)],
]);
