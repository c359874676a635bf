// Calibration of the probability of "right": of the steps judged 0.8, four of five should be right.
import { square } from '../../native/elementary.js';
import type { ScoredStep } from './thresholds.js';

export interface Calibration {
  /**
   * Expected calibration error (Naeini et al., AAAI 2015, for the positive class): the distance between mean
   * probability and share of correct steps in each bin, weighted by the bins' sizes.
   */
  readonly ece: number;
  /** Mean squared distance between probability and label. A constant ½ has 0.25. */
  readonly brier: number;
  /** Ten bins of equal width, [from, to) and the last one closed; empty ones are left out. */
  readonly bins: readonly ReliabilityBin[];
}

export interface ReliabilityBin {
  readonly from: number;
  readonly to: number;
  readonly n: number;
  /** Mean probability of "right". */
  readonly probability: number;
  /** Share of steps that are correct. */
  readonly positive_share: number;
}

const BINS = 10;

/** Undefined without steps. */
export function calibration(steps: readonly ScoredStep[]): Calibration | undefined {
  if (steps.length === 0) return undefined;
  const sums = Array.from({ length: BINS }, () => ({ n: 0, probability: 0, positive: 0 }));
  let squares = 0;
  for (const { label, probability } of steps) {
    const bin = sums[Math.min(BINS - 1, Math.floor(probability * BINS))]!;
    bin.n++;
    bin.probability += probability;
    bin.positive += label;
    squares += square(probability - label);
  }
  const bins = sums.flatMap(({ n, probability, positive }, i): ReliabilityBin[] =>
    n === 0
      ? []
      : [
          {
            from: i / BINS,
            to: (i + 1) / BINS,
            n,
            probability: Math.min(1, probability / n),
            positive_share: positive / n,
          },
        ],
  );
  const ece = bins.reduce(
    (sum, { n, probability, positive_share }) => sum + n * Math.abs(probability - positive_share),
    0,
  );
  return { ece: ece / steps.length, brier: squares / steps.length, bins };
}
