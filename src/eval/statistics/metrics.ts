// Metrics of step verdicts. Positive = a correct step. Every ratio with a zero denominator is 0.
// StepAMC (arXiv 2503.18432) reports Acc_pos, Acc_neg and F1 without naming the average, so all averages are here.

import type { JudgedStep } from '../../scoring/verdict/judged.js';

/** Counts of a two-class confusion; positive = correct step. Expected counts of a random baseline may be fractional. */
export interface Confusion {
  /** Correct steps called correct. */
  readonly tp: number;
  /** Correct steps called wrong. */
  readonly fn: number;
  /** Wrong steps called correct. */
  readonly fp: number;
  /** Wrong steps called wrong. */
  readonly tn: number;
}

/** Every metric is a fraction in [0, 1]; `n` is the number of judged steps. */
export interface ConfusionMetrics {
  readonly n: number;
  readonly accuracy: number;
  /** Recall of the correct steps. */
  readonly acc_pos: number;
  /** Recall of the wrong steps. */
  readonly acc_neg: number;
  readonly balanced_accuracy: number;
  readonly f1_pos: number;
  readonly f1_neg: number;
  /** Mean of the two classes' F1: the main metric. */
  readonly f1_macro: number;
  /** Equals the accuracy for two classes. */
  readonly f1_micro: number;
  /** Mean of the two classes' F1, weighted by their true shares. */
  readonly f1_weighted: number;
  /** Harmonic mean of acc_pos and acc_neg. */
  readonly f1_harmonic: number;
}

/** The metrics reported for one judge. */
export interface VerdictMetrics extends ConfusionMetrics {
  /** Steps whose verdict could not be read. */
  readonly invalid?: number;
  /** Area under the ROC curve of the probability of "right"; absent if only one class was judged. */
  readonly auc?: number;
}

export function confusionMetrics({ tp, fn, fp, tn }: Confusion): ConfusionMetrics {
  const n = tp + fn + fp + tn;
  const accuracy = ratio(tp + tn, n);
  const accPos = ratio(tp, tp + fn);
  const accNeg = ratio(tn, tn + fp);
  const f1Pos = ratio(2 * tp, 2 * tp + fp + fn);
  const f1Neg = ratio(2 * tn, 2 * tn + fn + fp);
  return {
    n,
    accuracy,
    acc_pos: accPos,
    acc_neg: accNeg,
    balanced_accuracy: (accPos + accNeg) / 2,
    f1_pos: f1Pos,
    f1_neg: f1Neg,
    f1_macro: (f1Pos + f1Neg) / 2,
    f1_micro: accuracy,
    f1_weighted: ratio((tp + fn) * f1Pos + (tn + fp) * f1Neg, n),
    f1_harmonic: harmonicMean(accPos, accNeg),
  };
}

export interface ConfusionCount {
  readonly confusion: Confusion;
  /** Number of unreadable verdicts. */
  readonly invalid: number;
}

/** Counts the confusion. An unreadable verdict is wrong for its class, or left out with `invalidAsWrong: false`. */
export function countConfusion(
  steps: Iterable<JudgedStep>,
  { invalidAsWrong }: { readonly invalidAsWrong: boolean },
): ConfusionCount {
  let [tp, fn, fp, tn, invalid] = [0, 0, 0, 0, 0];
  for (const { label, verdict } of steps) {
    if (verdict === undefined) {
      invalid++;
      if (!invalidAsWrong) continue;
    }
    if (label === 1) verdict === 1 ? tp++ : fn++;
    else verdict === 0 ? tn++ : fp++;
  }
  return { confusion: { tp, fn, fp, tn }, invalid };
}

// A type, not an interface, so that a report can add baselines of other names.
export type Baselines = {
  readonly always_positive: ConfusionMetrics;
  readonly always_negative: ConfusionMetrics;
  /** Always the class that is more frequent in training. */
  readonly majority: ConfusionMetrics;
  /** Says "right" at random with the frequency of the training labels; metrics of the expected confusion. */
  readonly random: ConfusionMetrics;
};

/**
 * Metrics of verdicts that ignore the step, on `positives` right and `negatives` wrong steps.
 * `positivePrior` is the share of correct steps in the training data.
 */
export function baselineMetrics(counts: {
  readonly positives: number;
  readonly negatives: number;
  readonly positivePrior: number;
}): Baselines {
  const { positives, negatives, positivePrior: p } = counts;
  if (!(p >= 0 && p <= 1)) throw new RangeError(`the share of positive labels must be in [0, 1], found ${p}`);
  const coin = (share: number) =>
    confusionMetrics({
      tp: positives * share,
      fn: positives * (1 - share),
      fp: negatives * share,
      tn: negatives * (1 - share),
    });
  return {
    always_positive: coin(1),
    always_negative: coin(0),
    majority: coin(p >= 0.5 ? 1 : 0),
    random: coin(p),
  };
}

/**
 * Whether `metric` is 0/0, or a mean with such a part, where only one class was judged: verdicts that are all "right" have accuracy 1
 * without wrong steps, and 0 without right ones.
 */
export function needsOtherClass(
  metric: string,
  { n, accuracy }: { readonly n: number; readonly accuracy: number },
): boolean {
  if (n === 0 || (accuracy > 0 && accuracy < 1)) return false;
  if (['balanced_accuracy', 'f1_macro', 'f1_harmonic', 'auc'].includes(metric)) return true;
  return accuracy === 1 ? ['acc_neg', 'f1_neg'].includes(metric) : ['acc_pos', 'f1_pos'].includes(metric);
}

/**
 * Area under the ROC curve of `scores` for `labels` (1 = positive): the probability that a positive scores above a
 * negative, ties counted half (Mann–Whitney). Undefined if one class is absent. O(n log n).
 */
export function rocAuc(scores: ArrayLike<number>, labels: ArrayLike<number>): number | undefined {
  if (scores.length !== labels.length) {
    throw new RangeError(
      `one score per label expected, found ${scores.length} scores and ${labels.length} labels`,
    );
  }
  const order = Array.from({ length: scores.length }, (_, i) => i);
  for (const i of order) {
    if (Number.isNaN(scores[i]!)) throw new RangeError(`score ${i} is not a number`);
  }
  order.sort((a, b) => scores[a]! - scores[b]! || 0);
  let positives = 0;
  let rankSum = 0;
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end < order.length && scores[order[end]!] === scores[order[start]!]) end++;
    const rank = (start + 1 + end) / 2; // mean of the tied ranks, counted from 1
    for (; start < end; start++) {
      if (labels[order[start]!] !== 1) continue;
      positives++;
      rankSum += rank;
    }
  }
  const negatives = order.length - positives;
  if (positives === 0 || negatives === 0) return undefined;
  return (rankSum - (positives * (positives + 1)) / 2) / (positives * negatives);
}

/** AUC of the probabilities of judged steps. */
export const aucOf = (steps: readonly Readonly<Record<'label' | 'probability', number>>[]) =>
  rocAuc(
    steps.map(({ probability }) => probability),
    steps.map(({ label }) => label),
  );

/** num / den, and 0 where the denominator is 0. */
export function ratio(numerator: number, denominator: number): number {
  return denominator === 0 ? 0 : numerator / denominator;
}

/** 2ab / (a + b), and 0 where both are 0. */
export function harmonicMean(a: number, b: number): number {
  return ratio(2 * a * b, a + b);
}
