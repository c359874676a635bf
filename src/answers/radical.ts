// Roots of whole numbers in normal form: √12 = 2·√3, √6 = √2·√3. Square roots of different primes are independent over the
// rational numbers, so that equal sums of them have equal coefficients.
import type { StepBudget } from './budget.js';
import type { Atom } from './polynomial.js';

export interface WholeRoot {
  readonly factor: bigint;
  readonly radicals: readonly { readonly atom: Atom; readonly exponent: number }[];
}

const LARGEST_DIVISOR = 2000n;

/** The index-th root of a positive whole number. */
export function rootOfWhole(value: bigint, index: number, budget: StepBudget): WholeRoot {
  let factor = 1n;
  const radicals: { atom: Atom; exponent: number }[] = [];
  const take = (radicand: bigint, times: number) => {
    factor *= radicand ** BigInt(Math.floor(times / index));
    const left = times % index;
    if (left === 0) return;
    const common = greatestCommonDivisor(left, index);
    radicals.push({ atom: radical(radicand, index / common), exponent: left / common });
  };
  let rest = value;
  for (
    let divisor = 2n;
    divisor <= LARGEST_DIVISOR && divisor * divisor <= rest;
    divisor += divisor === 2n ? 1n : 2n
  ) {
    budget.spend();
    let times = 0;
    for (; rest % divisor === 0n; times++) {
      budget.spend();
      rest /= divisor;
    }
    if (times > 0) take(divisor, times);
  }
  if (rest > 1n) {
    // The rest is a prime, or has only large prime factors.
    const whole = wholeRoot(rest, index, budget);
    if (whole !== undefined) take(whole, index);
    else take(rest, 1);
  }
  return { factor, radicals };
}

function radical(radicand: bigint, index: number): Atom {
  return { key: `root ${index} of ${radicand}`, kind: 'radical', index, radicand };
}

/** The whole index-th root, by bisection, where there is one. */
function wholeRoot(value: bigint, index: number, budget: StepBudget): bigint | undefined {
  const bits = value.toString(2).length;
  const words = 1 + (bits >> 6);
  let low = 1n;
  let high = 1n << BigInt(Math.ceil(bits / index));
  while (low < high) {
    budget.spend(words * words);
    const middle = (low + high + 1n) >> 1n;
    if (middle ** BigInt(index) <= value) low = middle;
    else high = middle - 1n;
  }
  return low ** BigInt(index) === value ? low : undefined;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
