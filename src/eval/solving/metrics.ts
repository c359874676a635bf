// Figures of solved problems: each the mean of something over problems, or the ratio of two sums over them.

import type { EqualityOptions } from '../../answers/equal.js';
import { exp } from '../../native/elementary.js';
import {
  BOOTSTRAP,
  type BootstrapOptions,
  type Range,
  resample,
  resampledInterval,
  SHARE,
} from '../statistics/bootstrap.js';
import { passAtK } from '../statistics/solutions.js';
import type { GradedSample } from './sample.js';
import { meanOverSubsets } from './subsets.js';
import { type Ballot, ballots, bestRight, votedRight } from './votes.js';

/** Each problem's additions to the numerator and denominator of a metric. */
export interface Contributions {
  readonly sums: readonly number[];
  readonly counts: readonly number[];
  /** Range of the metric; default that of a share, 0 to 1. */
  readonly range?: Range;
}

/** Range of an amount, without an upper bound. */
export const AMOUNT: Range = [0, Number.POSITIVE_INFINITY];

export interface MetricValue {
  readonly value: number;
  /**
   * Central 95 % of the bootstrap over problems, and what `resampledInterval` says where every problem says the same; absent for
   * fewer than two problems.
   */
  readonly interval?: readonly [number, number];
}

export interface MetricOptions extends EqualityOptions {
  /** The k of pass@k and the votes; each at most the number of samples. Default: 1, 2, 4, … and that number. */
  readonly ks?: readonly number[] | undefined;
}

/** 1, 2, 4, … and n. */
export function defaultKs(n: number): number[] {
  const powers: number[] = [];
  for (let k = 1; k < n; k *= 2) powers.push(k);
  return [...powers, n];
}

/**
 * Each problem's additions to each metric, by the metric's name:
 * - `pass@k`: probability that at least one of k samples is right, unbiased
 * - `maj@k`: probability that the most frequent answer of k samples is right; for k > 2, since two cannot outvote each
 *   other
 * - `best@k`, `weighted@k`: probability that the sample with the highest score is right, or the answer with the largest
 *   sum of scores; only with scores
 * - `auc_within`: probability that a right sample has a higher score than a wrong one of the same problem, over
 *   problems that have both. Scores that only separate hard problems from easy ones give 0.5, whatever their AUC over
 *   all samples
 * - `best_NAME@k`: the same under another aggregation of the scores of steps, where all were asked for; `learned` is
 *   fitted on the outcomes of other problems
 * - `step_errors`: share of right solutions with a step that is judged wrong; `wrong_steps`: share of the judged steps
 *   of right solutions that are wrong; only with verdicts
 * - `unanswered`, `truncated`: shares of samples without an answer, and cut off at the most tokens
 * - `tokens`: number in a sample; `tokens_problem`: number in all samples of a problem
 */
export function contributions(
  problems: readonly (readonly GradedSample[])[],
  { ks, ...equality }: MetricOptions = {},
): Map<string, Contributions> {
  const n = problems[0]?.length ?? 0;
  const all = ks ?? defaultKs(n);
  const metrics = new Map<string, Contributions>();
  const mean = (
    name: string,
    value: (samples: readonly GradedSample[], problem: number) => number,
    range = SHARE,
  ) => metrics.set(name, { sums: problems.map(value), counts: problems.map(() => 1), range });
  const share = (name: string, part: (samples: readonly GradedSample[]) => readonly [number, number]) => {
    const parts = problems.map(part);
    metrics.set(name, { sums: parts.map(([sum]) => sum), counts: parts.map(([, count]) => count) });
  };
  const count = (samples: readonly GradedSample[], is: (sample: GradedSample) => boolean) =>
    samples.filter(is).length;

  for (const k of all) mean(`pass@${k}`, (samples) => passAtK({ n, c: count(samples, isRight), k }));
  const cast = problems.map((samples): readonly Ballot[] => ballots(samples, equality));
  const overSubsets = (
    name: string,
    k: number,
    value: (problem: number, subset: readonly number[]) => number,
  ) =>
    mean(`${name}@${k}`, (_, problem) =>
      meanOverSubsets({ n, k, problem }, (subset) => value(problem, subset)),
    );
  for (const k of all.filter((k) => k > 2))
    overSubsets('maj', k, (problem, subset) => votedRight(cast[problem]!, subset));
  if (problems.some((samples) => samples.some(({ score }) => score !== undefined))) {
    const aucs = problems.map(aucWithin);
    if (aucs.some((auc) => auc !== undefined))
      metrics.set('auc_within', {
        sums: aucs.map((auc) => auc ?? 0),
        counts: aucs.map((auc) => (auc === undefined ? 0 : 1)),
      });
    const weights = voteWeights(problems);
    for (const k of all.filter((k) => k > 1))
      overSubsets('best', k, (problem, subset) => bestRight(problems[problem]!, subset));
    for (const k of all.filter((k) => k > 1))
      overSubsets('weighted', k, (problem, subset) => votedRight(cast[problem]!, subset, weights[problem]));
  }
  for (const how of Object.keys(problems[0]?.[0]?.scores ?? {})) {
    const scored = problems.map((samples) =>
      samples.map((sample) => ({ ...sample, score: sample.scores?.[how] ?? null })),
    );
    for (const k of all.filter((k) => k > 1))
      overSubsets(`best_${how}`, k, (problem, subset) => bestRight(scored[problem]!, subset));
  }
  if (problems.some((samples) => samples.some(({ steps }) => steps !== undefined))) {
    const judged = (samples: readonly GradedSample[]) =>
      samples.filter(isRight).map(({ steps = [] }) => steps.filter((step) => step !== null));
    const wrong = (steps: readonly number[]) => steps.filter((step) => step === 0).length;
    share('step_errors', (samples) => {
      const of = judged(samples).filter(({ length }) => length > 0);
      return [of.filter((steps) => wrong(steps) > 0).length, of.length];
    });
    share('wrong_steps', (samples) => {
      const of = judged(samples).flat();
      return [wrong(of), of.length];
    });
  }
  mean('unanswered', (samples) => count(samples, ({ answer }) => answer === null) / n);
  mean('truncated', (samples) => count(samples, ({ finish_reason }) => finish_reason === 'length') / n);
  const tokens = (samples: readonly GradedSample[]) => samples.reduce((sum, { tokens }) => sum + tokens, 0);
  mean('tokens', (samples) => tokens(samples) / n, AMOUNT);
  mean('tokens_problem', tokens, AMOUNT);
  return metrics;
}

function isRight({ right }: GradedSample): boolean {
  return right;
}

/** Area under the ROC curve of the scores of one problem's samples; undefined without a right and a wrong one. */
function aucWithin(samples: readonly GradedSample[]): number | undefined {
  const scores = (right: boolean) =>
    samples.filter((sample) => sample.right === right).map(({ score }) => score ?? Number.NEGATIVE_INFINITY);
  const [right, wrong] = [scores(true), scores(false)];
  if (right.length === 0 || wrong.length === 0) return undefined;
  const won = (a: number, b: number) => (a > b ? 1 : a === b ? 0.5 : 0);
  const sum = right.reduce((all, a) => all + wrong.reduce((beaten, b) => beaten + won(a, b), 0), 0);
  return sum / (right.length * wrong.length);
}

/**
 * Scores as weights of votes: as they are where all are from 0 to 1, else their logistic function, since a vote cannot
 * weigh less than nothing.
 */
function voteWeights(problems: readonly (readonly GradedSample[])[]): number[][] {
  const isShare = problems.every((samples) =>
    samples.every(({ score }) => (score ?? 0) >= 0 && (score ?? 0) <= 1),
  );
  const weight = (score: number | null | undefined) =>
    score === null || score === undefined ? 0 : isShare ? score : 1 / (1 + exp(-score));
  return problems.map((samples) => samples.map(({ score }) => weight(score)));
}

/** The metric with weight `weights[i]` on problem i, default 1 each; undefined for 0/0, a share of nothing. */
export function metricOf({ sums, counts }: Contributions, weights?: Uint32Array): number | undefined {
  let [sum, count] = [0, 0];
  for (let i = 0; i < sums.length; i++) {
    const weight = weights?.[i] ?? 1;
    sum += weight * sums[i]!;
    count += weight * counts[i]!;
  }
  return count === 0 ? undefined : sum / count;
}

/** Each metric with its interval; without those that are shares of nothing, and of resamples that are. */
export function metricValues(
  metrics: ReadonlyMap<string, Contributions>,
  bootstrap: Partial<BootstrapOptions> = {},
): Record<string, MetricValue> {
  const problems = [...metrics.values()][0]?.sums.length ?? 0;
  const resampled = new Map([...metrics.keys()].map((name) => [name, [] as number[]]));
  if (problems > 1)
    resample(problems, { ...BOOTSTRAP, ...bootstrap }, (weights) => {
      for (const [name, of] of metrics) {
        const value = metricOf(of, weights);
        if (value !== undefined) resampled.get(name)?.push(value);
      }
    });
  return Object.fromEntries(
    [...metrics].flatMap(([name, of]): [string, MetricValue][] => {
      const value = metricOf(of);
      if (value === undefined) return [];
      const values = resampled.get(name) ?? [];
      const counted = of.counts.filter((count) => count > 0).length;
      const interval =
        values.length === 0 ? undefined : resampledInterval(values, counted, of.range ?? SHARE);
      return [[name, { value, ...(interval ? { interval } : {}) }]];
    }),
  );
}
