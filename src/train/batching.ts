/** Order and grouping of sequences: a function of (seed, epoch) alone, so that a resumed run sees the same batches. */
import { PhiloxStream } from '../data/philox.js';

/** Domain of the random stream that orders the data. */
const ORDER = 0x6f726472;

/** A permutation of 0 … n − 1 by Fisher and Yates. */
export function epochOrder(n: number, seed: number, epoch: number): Int32Array {
  const order = Int32Array.from({ length: n }, (_, i) => i);
  const stream = new PhiloxStream(seed, ORDER, epoch);
  for (let i = n - 1; i > 0; i--) {
    const j = stream.below(i + 1);
    const moved = order[i] as number;
    order[i] = order[j] as number;
    order[j] = moved;
  }
  return order;
}

/** Consecutive items in groups of at most `budget` tokens; an item that alone exceeds it is a group of its own. */
export function groupByTokens<T>(items: Iterable<T>, tokensOf: (item: T) => number, budget: number): T[][] {
  const groups: T[][] = [];
  let tokens = Number.POSITIVE_INFINITY;
  for (const item of items) {
    const size = tokensOf(item);
    if (tokens + size > budget) {
      groups.push([]);
      tokens = 0;
    }
    groups.at(-1)?.push(item);
    tokens += size;
  }
  return groups;
}
