/** Limits the number of items of a part, as `data.max_samples` and `eval.max_samples` ask. */
import { hash48 } from '../random/text-hash.js';
import { normalizeProblem } from '../records/record.js';
import { isGenerated } from './generated.js';
import { sampleRanks, smallestRanks } from './split.js';

export interface LimitOptions {
  /** `data.source`: generated items come in random order, so the first ones are a draw already. */
  readonly source: string;
  /**
   * `data.seed`. Items are drawn at random, since the first rows of files are seldom a fair sample, and may all be of
   * the first file.
   */
  readonly seed: number;
}

/**
 * @param rankOf a rank of an item in [0, 1) that depends on its text and the seed alone
 * @returns the items with the smallest ranks, in their own order
 */
export function limited<T>(
  items: readonly T[],
  limit: number | 'all',
  { source, seed }: LimitOptions,
  rankOf: (item: T, seed: number) => number,
): readonly T[] {
  if (limit === 'all' || items.length <= limit) return items;
  if (isGenerated(source)) return items.slice(0, limit);
  const ranks = items.map((item) => rankOf(item, seed));
  return smallestRanks(ranks, limit).map((i) => items[i] as T);
}

/** The rank of a problem that is to be solved. */
export function problemRank({ problem }: { readonly problem: string }, seed: number): number {
  return sampleRanks(seed, problem, ['']).at(0) as number;
}

/** The rank of a whole solution: the last of its {@link sampleRanks}, in one call. */
export function solutionRank(
  { problem, steps }: { readonly problem: string; readonly steps: readonly { readonly text: string }[] },
  seed: number,
): number {
  if (steps.length === 0) return 0;
  const texts = steps.map(({ text }) => text);
  return hash48([seed, 'take', normalizeProblem(problem), ...texts].join('\0')) / 2 ** 48;
}
