/**
 * A learned aggregation: a logistic regression on outcomes that weighs all other aggregations of a solution and its
 * number of steps.
 */

import { log } from '../../native/elementary.js';
import { fitLogistic } from '../statistics/logistic.js';
import { AGGREGATIONS, aggregated } from './aggregation.js';
import type { GradedSample } from './sample.js';

/** Parts of the problems; each is scored with weights that the others gave. */
const FOLDS = 5;

/**
 * @param scores by sample those of its steps
 * @returns by sample the probability that it is right, from weights fitted without any sample of its problem; null where it
 *   has no score
 */
export function learnedAggregation(
  samples: readonly Pick<GradedSample, 'problem' | 'right'>[],
  scores: readonly (readonly number[])[],
): (number | null)[] {
  const rows = scores.map(featuresOf);
  const foldOf = (i: number) => (samples[i] as GradedSample).problem % FOLDS;
  const probabilities = Array.from({ length: FOLDS }, (_, fold) => {
    const given = samples.flatMap(({ right }, i) => {
      const row = rows[i];
      return row && foldOf(i) !== fold ? [{ row, label: right ? 1 : 0 }] : [];
    });
    return fitLogistic(
      given.map(({ row }) => row),
      given.map(({ label }) => label),
    );
  });
  return rows.map((row, i) =>
    row ? (probabilities[foldOf(i)] as (row: readonly number[]) => number)(row) : null,
  );
}

function featuresOf(scores: readonly number[]): number[] | undefined {
  if (scores.length === 0) return undefined;
  return [...AGGREGATIONS.map((how) => aggregated(scores, how) as number), log(scores.length)];
}
