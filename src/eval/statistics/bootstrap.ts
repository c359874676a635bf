// Confidence intervals of metrics by the bootstrap (Efron 1979) over whole problems, since verdicts on the steps of one
// problem are correlated. Each resample has its own Philox stream, so the same seed gives the same metrics everywhere.
import { grouped } from '../../native/grouped.js';
import { PhiloxStream } from '../../random/philox.js';
import type { JudgedStep } from '../../scoring/verdict/judged.js';
import { type ConfusionMetrics, confusionMetrics, countConfusion } from './metrics.js';
import type { ScoredStep } from './thresholds.js';

export interface BootstrapOptions {
  readonly seed: number;
  readonly resamples: number;
}

export const BOOTSTRAP: BootstrapOptions = { seed: 42, resamples: 1000 };

/** Share of resamples that an interval covers. */
export const CONFIDENCE = 0.95;

/** A judged step and the problem it belongs to, by any name that all steps of the problem share. */
export interface ProblemStep extends JudgedStep, ScoredStep {
  readonly problem: string;
}

export type IntervalMetric = Exclude<keyof ConfusionMetrics, 'n'> | 'auc';

type Label = JudgedStep['label'];

/** Labels without whose steps a metric says nothing of a judge: it, or a part of it, is 0/0, or 0 for any judge. */
const NEEDED: Readonly<Partial<Record<IntervalMetric, readonly Label[]>>> = {
  acc_pos: [1],
  acc_neg: [0],
  f1_pos: [1],
  f1_neg: [0],
  balanced_accuracy: [0, 1],
  f1_macro: [0, 1],
  f1_harmonic: [0, 1],
  auc: [0, 1],
};

export interface Intervals extends BootstrapOptions {
  readonly confidence: number;
  readonly problems: number;
  /** Lower and upper end by metric; AUC only if both classes were judged. */
  readonly metrics: Readonly<Partial<Record<IntervalMetric, readonly [number, number]>>>;
}

/** Domain of the random stream that draws problems. */
const DRAW = 0x626f6f74;

/**
 * An interval of every metric, see `resampledInterval`. A resample that lacks a class which a metric needs, though the
 * steps have it, is left out of that metric. Undefined with fewer than two problems.
 */
export function bootstrapIntervals(
  steps: readonly ProblemStep[],
  { invalidAsWrong, ...bootstrap }: BootstrapOptions & { readonly invalidAsWrong: boolean },
): Intervals | undefined {
  const sample = new ProblemSample(steps, { invalidAsWrong });
  if (sample.problems < 2) return undefined;
  const values: Record<string, number[]> = {};
  resample(sample.problems, bootstrap, (weights) => {
    const { n: _, ...metrics } = sample.metrics(weights);
    for (const [metric, value] of Object.entries({ ...metrics, auc: sample.auc(weights) })) {
      if (value === undefined || !sample.tells(metric as IntervalMetric, weights)) continue;
      values[metric] ??= [];
      values[metric].push(value);
    }
  });
  const metrics = Object.fromEntries(
    Object.entries(values).map(([metric, of]) => [
      metric,
      resampledInterval(of, sample.problemsOf(metric as IntervalMetric), SHARE),
    ]),
  );
  return { confidence: CONFIDENCE, problems: sample.problems, ...bootstrap, metrics };
}

/**
 * The value of each resample.
 *
 * @param of takes how often each of `problems` problems was drawn, in an array that the next resample overwrites
 */
export function resample<Value>(
  problems: number,
  { seed, resamples }: BootstrapOptions,
  of: (weights: Uint32Array) => Value,
): Value[] {
  const weights = new Uint32Array(problems);
  return Array.from({ length: resamples }, (_, index) => {
    const stream = new PhiloxStream(seed, DRAW, index);
    weights.fill(0);
    for (let i = 0; i < problems; i++) weights[stream.below(problems)]!++;
    return of(weights);
  });
}

/** The least and the largest value that a metric can have, which may be infinite. */
export type Range = readonly [low: number, high: number];

export const SHARE: Range = [0, 1];
/** Range of a difference between two shares. */
export const SHARE_DIFFERENCE: Range = [-1, 1];

/**
 * The interval of a metric by its resamples: their percentiles. Where all resamples are alike, the bootstrap gives no
 * interval: 8 right of 8 would be 100 % for certain. A property that no problem showed may then hold for as many as
 * Wilson's interval allows (`unseenShare`), with any value of the range: a share of 1 gets Wilson's lower end to 1, a
 * difference of 0 gets −u to u.
 *
 * @returns undefined where all resamples are alike and the metric has no bounds
 */
export function resampledInterval(
  values: readonly number[],
  problems: number,
  range: Range,
): [number, number] | undefined {
  const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  if (high - low > ROUNDING) return percentileInterval(values);
  if (!range.every(Number.isFinite)) return undefined;
  const unseen = unseenShare(problems);
  return [low - unseen * (low - range[0]), high + unseen * (range[1] - high)];
}

/** Largest difference between sums of the same terms in another order. */
const ROUNDING = 1e-12;

/** The central interval of `values` that covers CONFIDENCE of them; ends are interpolated linearly, as in numpy. */
export function percentileInterval(values: readonly number[]): [number, number] {
  const sorted = Float64Array.from(values).sort();
  const at = (share: number) => {
    const place = share * (sorted.length - 1);
    const below = sorted[Math.floor(place)]!;
    return below + (place % 1) * (sorted[Math.ceil(place)]! - below);
  };
  return [at((1 - CONFIDENCE) / 2), at((1 + CONFIDENCE) / 2)];
}

/** Judged steps aggregated by problem, so that the metrics of a resample need no pass over its steps. */
export class ProblemSample {
  readonly problems: number;
  private readonly confusions: readonly { tp: number; fn: number; fp: number; tn: number }[];
  /** Whether a problem has steps of a label, by label. */
  private readonly withLabel: Readonly<Record<Label, readonly boolean[]>>;
  /** Steps in order of probability. */
  private readonly ranked: readonly { label: 0 | 1; probability: number; problem: number }[];

  constructor(steps: readonly ProblemStep[], options: { readonly invalidAsWrong: boolean }) {
    const groups = [...grouped(steps, ({ problem }) => problem).values()];
    this.problems = groups.length;
    this.confusions = groups.map((group) => countConfusion(group, options).confusion);
    this.withLabel = {
      0: this.confusions.map(({ fp, tn }) => fp + tn > 0),
      1: this.confusions.map(({ tp, fn }) => tp + fn > 0),
    };
    this.ranked = groups
      .flatMap((group, problem) => group.map(({ label, probability }) => ({ label, probability, problem })))
      .sort((a, b) => a.probability - b.probability);
  }

  /** Whether a resample has every class that a metric needs and that the steps have. */
  tells(metric: IntervalMetric, weights: Uint32Array): boolean {
    return this.needed(metric).every((has) => has.some((has, i) => has && weights[i]! > 0));
  }

  /** Number of problems on which a metric depends: of a recall those with steps of its class, else all. */
  problemsOf(metric: IntervalMetric): number {
    const [has] = metric === 'acc_pos' || metric === 'acc_neg' ? this.needed(metric) : [];
    return has ? has.filter(Boolean).length : this.problems;
  }

  private needed(metric: IntervalMetric): (readonly boolean[])[] {
    return (NEEDED[metric] ?? []).map((label) => this.withLabel[label]).filter((has) => has.includes(true));
  }

  /** Metrics with weight `weights[i]` on problem i. */
  metrics(weights: Uint32Array): ConfusionMetrics {
    const sum = { tp: 0, fn: 0, fp: 0, tn: 0 };
    this.confusions.forEach(({ tp, fn, fp, tn }, i) => {
      const weight = weights[i]!;
      sum.tp += weight * tp;
      sum.fn += weight * fn;
      sum.fp += weight * fp;
      sum.tn += weight * tn;
    });
    return confusionMetrics(sum);
  }

  /** Area under the ROC curve with weight `weights[i]` on problem i; undefined if one class is absent. */
  auc(weights: Uint32Array): number | undefined {
    let [won, positives, negatives] = [0, 0, 0];
    for (let i = 0; i < this.ranked.length; ) {
      const { probability } = this.ranked[i]!;
      let [tiedPositives, tiedNegatives] = [0, 0];
      for (; i < this.ranked.length && this.ranked[i]!.probability === probability; i++) {
        const { label, problem } = this.ranked[i]!;
        if (label === 1) tiedPositives += weights[problem]!;
        else tiedNegatives += weights[problem]!;
      }
      won += tiedPositives * (negatives + tiedNegatives / 2);
      positives += tiedPositives;
      negatives += tiedNegatives;
    }
    return positives === 0 || negatives === 0 ? undefined : won / (positives * negatives);
  }
}

/** The normal quantile of a central 95 %. */
const Z = 1.959963984540054;

/**
 * The upper end of Wilson's score interval (1927), central 95 %, for a share that none of `n` problems showed: z² / (n
 * + z²).
 *
 * @param n at least 0; without a problem the share may be 1
 */
export function unseenShare(n: number): number {
  return (Z * Z) / (n + Z * Z);
}
