import { atan, cos, sin, square } from '../../native/elementary.js';
// Student's t: intervals of a mean over few seeds, where a bootstrap over so few values would be too narrow.

export interface MeanInterval {
  readonly n: number;
  readonly mean: number;
  /** Central 95 % under normally distributed values (Student 1908); absent with fewer than two different values. */
  readonly interval?: readonly [number, number];
  /** Two-sided, of a mean of 0; absent where there is no interval. */
  readonly p?: number;
}

/** Mean of `values` with its t interval. */
export function meanInterval(values: readonly number[], confidence = 0.95): MeanInterval {
  const n = values.length;
  const mean = average(values);
  const error = sampleDeviation(values) / Math.sqrt(n);
  // Equal values do not show how far others lie; sums in another order differ by rounding.
  if (!(error > 1e-12 * Math.abs(mean))) return { n, mean };
  const half = error * studentQuantile((1 + confidence) / 2, n - 1);
  const p = 2 * (1 - studentCdf(Math.abs(mean) / error, n - 1));
  return { n, mean, interval: [mean - half, mean + half], p };
}

/** A sentence on the interval of a difference over seeds: it shows nothing where it contains 0. */
export function intervalReading({ n, interval }: Pick<MeanInterval, 'n' | 'interval'>): string {
  if (!interval) return n > 1 ? 'the same on every seed: no interval' : 'one seed shows nothing';
  const [low, high] = interval;
  if (low <= 0 && high >= 0) return 'no difference shown';
  return low > 0 ? 'higher' : 'lower';
}

export function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/**
 * Deviation of a sample, with n − 1. It is 0 for a single value, and for equal ones, whose mean may differ from them by
 * rounding.
 */
export function sampleDeviation(values: readonly number[]): number {
  if (values.every((value) => value === values[0])) return 0;
  const mean = average(values);
  const squares = values.reduce((sum, value) => sum + square(value - mean), 0);
  return Math.sqrt(squares / Math.max(1, values.length - 1));
}

/** The t that a share `probability` (½ to 1) of the distribution with `df` degrees of freedom lies below. */
export function studentQuantile(probability: number, df: number): number {
  let [low, high] = [0, 1];
  while (studentCdf(high, df) < probability) high *= 2;
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2;
    if (studentCdf(middle, df) < probability) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/**
 * P(T ≤ t) for t ≥ 0 and whole `df`, by the finite sums for odd and even degrees of freedom (Abramowitz and Stegun 26.7.3
 * and 26.7.4).
 */
export function studentCdf(t: number, df: number): number {
  const theta = atan(t / Math.sqrt(df));
  const [sine, cosine] = [sin(theta), cos(theta)];
  const odd = df % 2 === 1;
  let [sum, term] = [0, odd ? cosine : 1];
  for (let power = odd ? 1 : 0; power <= df - 2; power += 2) {
    sum += term;
    term *= (cosine * cosine * (power + 1)) / (power + 2);
  }
  const within = odd ? (2 / Math.PI) * (theta + sine * sum) : sine * sum;
  return (1 + within) / 2;
}
