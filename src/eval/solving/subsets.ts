// Means over the subsets of k of n samples: the average result of a vote or a choice among k samples.
import { PhiloxStream } from '../../random/philox.js';

/** Up to this many subsets all are taken; of more, this many at random. */
const MAX_SUBSETS = 2000;

const SEED = 42;
/** Domain of the random stream that draws subsets. */
const DRAW = 0x73756273;

/**
 * The mean of `value` over the subsets of k of n samples, given as ascending indices; exact where there are at most
 * `most` of them.
 *
 * @param problem keys the random numbers
 */
export function meanOverSubsets(
  { n, k, problem, most = MAX_SUBSETS }: { n: number; k: number; problem: number; most?: number },
  value: (subset: readonly number[]) => number,
): number {
  let [sum, count] = [0, 0];
  for (const subset of binomial(n, k) <= most ? allSubsets(n, k) : randomSubsets(n, k, problem, most)) {
    sum += value(subset);
    count++;
  }
  return sum / count;
}

/** Yields all subsets of k of n in lexicographic order. */
export function* allSubsets(n: number, k: number): Generator<readonly number[]> {
  const subset = Array.from({ length: k }, (_, i) => i);
  for (;;) {
    yield [...subset];
    let place = k - 1;
    while (place >= 0 && subset[place] === n - k + place) place--;
    if (place < 0) return;
    subset[place]!++;
    for (let i = place + 1; i < k; i++) subset[i] = subset[i - 1]! + 1;
  }
}

function* randomSubsets(n: number, k: number, problem: number, count: number): Generator<readonly number[]> {
  const stream = new PhiloxStream(SEED, DRAW + k, problem);
  const order = Array.from({ length: n }, (_, i) => i);
  for (let drawn = 0; drawn < count; drawn++) {
    for (let i = 0; i < k; i++) {
      const other = i + stream.below(n - i);
      [order[i], order[other]] = [order[other]!, order[i]!];
    }
    yield order.slice(0, k).sort((a, b) => a - b);
  }
}

/** n over k; a float, exact below 2⁵³. */
export function binomial(n: number, k: number): number {
  let value = 1;
  for (let i = 1; i <= Math.min(k, n - k); i++) value = (value * (n - i + 1)) / i;
  return Math.round(value);
}
