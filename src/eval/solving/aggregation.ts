// Aggregations of the scores of a solution's steps into one.
import { exp, log } from '../../native/elementary.js';
import { RunError } from '../../run/error.js';
import type { Scorer } from '../../scoring/scorer.js';

/** The aggregations. `last` suits models whose scores are values, the others models that judge steps. */
export const AGGREGATIONS: readonly Aggregation[] = [
  'min',
  'product',
  'mean',
  'last',
  'max',
  'geometric_mean',
  'soft_min',
];
export type Aggregation = 'min' | 'product' | 'mean' | 'last' | 'max' | 'geometric_mean' | 'soft_min';

/** Whether it multiplies scores, so that they must be probabilities. */
export function isOfProbabilities(how: Aggregation): boolean {
  return how === 'product' || how === 'geometric_mean';
}

/** @throws RunError for a product of scores that are no probabilities; `option` says where it was asked for */
export function refuseProduct(
  { name, scale }: Pick<Scorer, 'name' | 'scale'>,
  how: Aggregation,
  option: string,
): void {
  if (scale === 'probability' || !isOfProbabilities(how)) return;
  throw new RunError(
    `${name} scores steps without bounds, and ${option} ${how} multiplies probabilities: of two bad steps it would make a good ` +
      'solution; use min, mean, last, max or soft_min',
  );
}

/** Sharpness b of `soft_min`: −log(mean of exp(−b·p)) / b. A sum in place of the mean would prefer short solutions. */
const SHARPNESS = 10;

/** One score from those of the steps; null where there is none. */
export function aggregated(scores: readonly number[], how: Aggregation): number | null {
  if (scores.length === 0) return null;
  switch (how) {
    case 'min':
      return scores.reduce((least, score) => Math.min(least, score));
    case 'product':
      return scores.reduce((product, score) => product * score);
    case 'mean':
      return scores.reduce((sum, score) => sum + score, 0) / scores.length;
    case 'last':
      return scores.at(-1) as number;
    case 'max':
      return scores.reduce((most, score) => Math.max(most, score));
    case 'geometric_mean':
      return exp(scores.reduce((sum, score) => sum + log(Math.max(0, score)), 0) / scores.length);
    case 'soft_min': {
      const least = scores.reduce((found, score) => Math.min(found, score));
      const sum = scores.reduce((total, score) => total + exp(-SHARPNESS * (score - least)), 0);
      return least - log(sum / scores.length) / SHARPNESS;
    }
  }
}

/** The scores up to the first below one half, that one included: models that learned no step after an error know no more. */
export function untilWrong(probabilities: readonly number[]): readonly number[] {
  const first = probabilities.findIndex((probability) => probability < 0.5);
  return first < 0 ? probabilities : probabilities.slice(0, first + 1);
}
