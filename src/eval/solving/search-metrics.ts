// A search compared with samples of the same problems for as many tokens.
import type { EqualityOptions } from '../../answers/equal.js';
import { SHARE } from '../statistics/bootstrap.js';
import { AMOUNT, type Contributions } from './metrics.js';
import type { GradedSample } from './sample.js';
import type { Searched } from './search.js';
import { ballots, bestRight, votedRight } from './votes.js';

/** A line of search.jsonl. */
export interface GradedSearch extends Searched {
  readonly answer: string | null;
  readonly right: boolean;
}

/** Number of samples, from the first, that have together at most `tokens`; at least one. */
export function withinTokens(samples: readonly Pick<GradedSample, 'tokens'>[], tokens: number): number {
  let sum = 0;
  const over = samples.findIndex((sample) => {
    sum += sample.tokens;
    return sum > tokens;
  });
  return Math.max(1, over < 0 ? samples.length : over);
}

/**
 * Each problem's additions to each metric:
 * - `search`: share of problems whose found answer is right
 * - `best_equal`, `maj_equal`: the same for the best-scored of the samples that fit into the search's tokens, and for
 *   their most frequent answer
 * - `tokens_search`, `tokens_equal`: tokens of a problem in the search and in those samples
 */
export function searchContributions(
  searched: readonly GradedSearch[],
  samples: readonly (readonly GradedSample[])[],
  equality: EqualityOptions,
): Map<string, Contributions> {
  const ones = searched.map(() => 1);
  const subsets = searched.map(({ tokens }, i) =>
    Array.from({ length: withinTokens(samples[i] ?? [], tokens) }, (_, s) => s),
  );
  const mean = (value: (i: number) => number, range = SHARE): Contributions => ({
    ...{ sums: searched.map((_, i) => value(i)), counts: ones, range },
  });
  const own = (i: number) => samples[i] as readonly GradedSample[];
  const subset = (i: number) => subsets[i] as number[];
  return new Map([
    ['search', mean((i) => (searched[i]?.right ? 1 : 0))],
    ['best_equal', mean((i) => bestRight(own(i), subset(i)))],
    ['maj_equal', mean((i) => votedRight(ballots(own(i), equality), subset(i)))],
    ['tokens_search', mean((i) => searched[i]?.tokens ?? 0, AMOUNT)],
    ['tokens_equal', mean((i) => subset(i).reduce((sum, s) => sum + (own(i)[s]?.tokens ?? 0), 0), AMOUNT)],
  ]);
}
