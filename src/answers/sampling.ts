// Decides by sampling whether a value is zero, if no exact form does. Samples depend on the names of variables alone.
import { power } from '../native/elementary.js';
import type { StepBudget } from './budget.js';
import * as complex from './complex.js';
import { type Complex, FUNCTION_VALUES, NOT_DEFINED, real } from './complex.js';
import type { Atom, Polynomial, Polynomials, Ratio } from './polynomial.js';
import { toNumber } from './rational.js';

const SAMPLES = 8;
/** Min number of samples at which the value must be defined. */
const MIN_SAMPLES = 4;
/** Doubles keep 16 digits; sampling asks that 11 agree. */
const TOLERANCE = 1e-11;

/** The source of sampled values: an `Algebra`. */
export interface Sampled {
  readonly budget: StepBudget;
  readonly polynomials: Pick<Polynomials, 'atom'>;
  /** Set where sampling had to decide. */
  sampled: boolean;
  /** Set where a function that is not computed had to be sampled: a difference decides nothing then. */
  opaque: boolean;
}

/** The value of a constant in doubles, or undefined where it has variables, is not real or not finite. */
export function realValue(algebra: Sampled, value: Ratio): number | undefined {
  const sample = new Sample(algebra, 0);
  const { re, im } = sample.value(value);
  return !sample.hasVariables && Math.abs(im) < TOLERANCE && !Number.isNaN(re) ? re : undefined;
}

/**
 * Whether `value` is zero wherever it is defined. A sum counts as zero where its terms cancel to {@link TOLERANCE}, so that
 * large exact parts do not hide small ones.
 */
export function isZeroAtSamples(algebra: Sampled, { over, under }: Ratio): boolean {
  algebra.sampled = true;
  let defined = 0;
  for (let i = 0; i < SAMPLES; i++) {
    const sample = new Sample(algebra, i);
    const [top, bottom] = [sample.sum(over), sample.sum(under)];
    const isDefined =
      complex.isFiniteNumber(top.value) && complex.isFiniteNumber(bottom.value) && Number.isFinite(top.scale);
    if (isDefined && complex.size(bottom.value) > TOLERANCE * bottom.scale) {
      if (complex.size(top.value) > TOLERANCE * top.scale) return false;
      defined++;
    }
    if (!sample.hasVariables) return defined > 0;
  }
  return defined >= MIN_SAMPLES;
}

class Sample {
  hasVariables = false;
  private readonly values = new Map<number, Complex>();

  constructor(
    private readonly algebra: Sampled,
    private readonly index: number,
  ) {}

  value({ over, under }: Ratio): Complex {
    return complex.divide(this.sum(over).value, this.sum(under).value);
  }

  /** The value, and the size of the largest term. */
  sum(polynomial: Polynomial): { readonly value: Complex; readonly scale: number } {
    let value = real(0);
    let scale = 0;
    for (const { coefficient, powers } of polynomial.values()) {
      this.algebra.budget.spend(1 + powers.length);
      // No coefficient is zero: one that is so in doubles is lost.
      const factor = toNumber(coefficient);
      let term = Math.abs(factor) < SMALLEST ? NOT_DEFINED : real(factor);
      for (const [atom, exponent] of powers) term = product(term, raised(this.atom(atom), real(exponent)));
      value = complex.add(value, term);
      scale = Math.max(scale, complex.size(term));
    }
    return { value, scale };
  }

  private atom(id: number): Complex {
    const known = this.values.get(id);
    if (known !== undefined) return known;
    this.algebra.budget.spend(4);
    const value = this.compute(this.algebra.polynomials.atom(id));
    this.values.set(id, value);
    return value;
  }

  private compute({ key, kind, index = 2, radicand = 0n, name = '', args = [] }: Atom): Complex {
    if (kind === 'imaginary') return { re: 0, im: 1 };
    if (kind === 'radical')
      return real(index === 2 ? Math.sqrt(Number(radicand)) : power(Number(radicand), 1 / index));
    if (kind === 'free') return this.free(key);
    if (name === 'infinity') return real(Number.POSITIVE_INFINITY);
    const compute = FUNCTION_VALUES.get(name);
    const [first, second] = args.map((arg) => this.value(arg));
    if (first !== undefined && second === undefined && compute !== undefined) return compute(first);
    if (first !== undefined && second !== undefined && name === 'power') return raised(first, second);
    if (first !== undefined && name.startsWith('root ')) return complex.root(first, Number(name.slice(5)));
    // An unknown function is a separate variable for every argument.
    if (name === '!') return NOT_DEFINED;
    this.algebra.opaque = true;
    return this.free(key);
  }

  private free(key: string): Complex {
    if (key === '\\pi') return real(Math.PI);
    if (key === 'e') return real(Math.E);
    this.hasVariables = true;
    const drawn = hash(`${this.index} ${key}`) / 2 ** 32;
    const size = 0.2 + 3.1 * drawn;
    // The first samples are positive, the later ones of both signs.
    const isNegative =
      this.index >= SAMPLES / 2 && !key.startsWith('unit ') && hash(`${key} ${this.index}`) % 3 > 0;
    return real(isNegative ? -size : size);
  }
}

/** Below this a double has lost digits, or is 0 for a number that is not. */
const SMALLEST = 1e-290;

/** a · b, not defined where the doubles end before the product does. */
function product(a: Complex, b: Complex): Complex {
  const value = complex.multiply(a, b);
  const isLost = complex.size(value) < SMALLEST && complex.size(a) > 0 && complex.size(b) > 0;
  return isLost ? NOT_DEFINED : value;
}

/** base ^ exponent, likewise. */
function raised(base: Complex, exponent: Complex): Complex {
  const value = complex.power(base, exponent);
  return complex.size(value) < SMALLEST && complex.size(base) > 0 ? NOT_DEFINED : value;
}

/** FNV-1a of 32 bits. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  // Mixes the last characters into the high bits too.
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d) >>> 0;
  return (value ^ (value >>> 13)) >>> 0;
}
