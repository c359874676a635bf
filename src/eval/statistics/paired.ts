// Differences between two judges of the same steps, by a bootstrap that is paired: both get the same resampled problems.
import {
  type BootstrapOptions,
  type IntervalMetric,
  ProblemSample,
  type ProblemStep,
  resample,
  resampledInterval,
  SHARE_DIFFERENCE,
} from './bootstrap.js';
import { confusionMetrics, countConfusion } from './metrics.js';

export interface Difference {
  /** B minus A. */
  readonly difference: number;
  /** Central 95 % of the resamples; where all are alike, the interval that so few problems leave open. */
  readonly interval: readonly [number, number];
  /** Two-sided, see `twoSided`. */
  readonly p: number;
}

export interface Differences {
  readonly steps: 'all' | 'unseen';
  readonly n: number;
  /**
   * Differences by the name of the rival, as in `baselines` of an `EvalReport`; `random` has no sampling error of its
   * own.
   */
  readonly to: Readonly<Record<string, Omit<Difference, 'p'>>>;
}

/** Paired differences by metric. Both judges must have the same steps in the same order. Deterministic for a seed. */
export function pairedDifferences<Metric extends Exclude<IntervalMetric, 'auc'>>(
  a: readonly ProblemStep[],
  b: readonly ProblemStep[],
  metrics: readonly Metric[],
  { invalidAsWrong, ...bootstrap }: BootstrapOptions & { readonly invalidAsWrong: boolean },
): { readonly problems: number; readonly differences: Readonly<Record<Metric, Difference>> } {
  const [sampleA, sampleB] = [a, b].map((steps) => new ProblemSample(steps, { invalidAsWrong })) as [
    ProblemSample,
    ProblemSample,
  ];
  const [ofA, ofB] = [a, b].map((steps) =>
    confusionMetrics(countConfusion(steps, { invalidAsWrong }).confusion),
  ) as [ReturnType<typeof confusionMetrics>, ReturnType<typeof confusionMetrics>];
  const resampled = metrics.map((): number[] => []);
  resample(sampleA.problems, bootstrap, (weights) => {
    const [one, other] = [sampleA.metrics(weights), sampleB.metrics(weights)];
    metrics.forEach((metric, i) => {
      if (sampleA.tells(metric, weights)) resampled[i]?.push(other[metric] - one[metric]);
    });
  });
  const differences = metrics.map((metric, i) => {
    const values = resampled[i] as number[];
    const problems = sampleA.problemsOf(metric);
    const interval = resampledInterval(values, problems, SHARE_DIFFERENCE) as [number, number];
    const difference = ofB[metric] - ofA[metric];
    return [metric, { difference, interval, p: twoSided(values, problems) }] as const;
  });
  return {
    problems: sampleA.problems,
    differences: Object.fromEntries(differences) as unknown as Record<Metric, Difference>,
  };
}

/**
 * Twice the share of resampled differences on the other side of 0, at least one resample, and at least 2^(1−n): the least that a
 * test of signs gives for `n` problems.
 */
export function twoSided(differences: readonly number[], n: number): number {
  const notAbove = differences.filter((difference) => difference <= 0).length;
  const notBelow = differences.filter((difference) => difference >= 0).length;
  const share = (2 * (Math.min(notAbove, notBelow) + 1)) / (differences.length + 1);
  return Math.min(1, Math.max(share, 2 ** (1 - n)));
}
