// Verdicts at other thresholds on the probability of "right". Thresholds are chosen on validation steps, never on the
// steps that the report is about.
import { type Confusion, type ConfusionMetrics, confusionMetrics } from './metrics.js';

/** A step's label and its probability of being correct. */
export interface ScoredStep {
  readonly label: 0 | 1;
  readonly probability: number;
  /** Has no word at any threshold, as after a reason that did not end: wrong for its class at all of them. */
  readonly unreadable?: true;
}

export interface ThresholdSweep {
  /** The judged steps, called correct if the probability reaches the threshold. */
  readonly table: readonly ThresholdRow[];
  /** The best thresholds for two metrics on the validation steps; absent without validation steps of both classes. */
  readonly chosen?: {
    readonly f1_macro: ChosenThreshold;
    readonly balanced_accuracy: ChosenThreshold;
  };
}

export interface ThresholdRow {
  readonly threshold: number;
  readonly metrics: ConfusionMetrics;
}

export interface ChosenThreshold extends ThresholdRow {
  /** The metric's value on the validation steps, the max over thresholds; `metrics` are of the judged steps. */
  readonly validation: number;
}

export type ThresholdAim = 'f1_macro' | 'balanced_accuracy';

const TABLE = Array.from({ length: 19 }, (_, i) => (i + 1) / 20);

/** Whether there are right and wrong steps, without which AUC and a best threshold cannot be told. */
export const hasBothClasses = (steps: readonly Pick<ScoredStep, 'label'>[]) =>
  new Set(steps.map(({ label }) => label)).size === 2;

/** Metrics at 0.05, 0.10, … 0.95, and at the thresholds that are best on `validation`. */
export function thresholdSweep(
  steps: readonly ScoredStep[],
  validation: readonly ScoredStep[] = [],
): ThresholdSweep {
  const at = (threshold: number): ThresholdRow => ({
    threshold,
    metrics: confusionMetrics(confusionAt(steps, threshold)),
  });
  const table = TABLE.map(at);
  if (!hasBothClasses(validation)) return { table };
  const choose = (aim: ThresholdAim): ChosenThreshold => {
    const { threshold, value } = bestThreshold(validation, aim);
    return { ...at(threshold), validation: value };
  };
  return { table, chosen: { f1_macro: choose('f1_macro'), balanced_accuracy: choose('balanced_accuracy') } };
}

/** The confusion of calling a step correct if its probability is at least `threshold`. */
export function confusionAt(steps: Iterable<ScoredStep>, threshold: number): Confusion {
  let [tp, fn, fp, tn] = [0, 0, 0, 0];
  for (const { label, probability, unreadable } of steps) {
    if (unreadable ? label === 0 : probability >= threshold) label === 1 ? tp++ : fp++;
    else label === 1 ? fn++ : tn++;
  }
  return { tp, fn, fp, tn };
}

/**
 * The threshold in [0, 1] with the largest `aim`. The candidates are the midpoints between neighbouring probabilities
 * and one beyond either end; ties go to the one nearest to ½. O(n log n).
 */
export function bestThreshold(
  steps: readonly ScoredStep[],
  aim: ThresholdAim,
): { readonly threshold: number; readonly value: number } {
  const sorted = steps.filter(({ unreadable }) => !unreadable);
  sorted.sort((a, b) => a.probability - b.probability);
  // Every step at or above the threshold counts as correct; it rises from below the smallest probability.
  const confusion: { -readonly [Count in keyof Confusion]: number } = { ...confusionAt(steps, 0) };
  let best = { threshold: (sorted[0]?.probability ?? 1) / 2, value: confusionMetrics(confusion)[aim] };
  for (let i = 0; i < sorted.length; ) {
    const { probability } = sorted[i]!;
    for (; i < sorted.length && sorted[i]!.probability === probability; i++) {
      if (sorted[i]!.label === 1) {
        confusion.tp--;
        confusion.fn++;
      } else {
        confusion.fp--;
        confusion.tn++;
      }
    }
    const next = sorted[i]?.probability ?? 1;
    if (next <= probability) break; // nothing lies above a probability of 1
    const threshold = halfway(probability, next);
    const value = confusionMetrics(confusion)[aim];
    const nearer = Math.abs(threshold - 0.5) < Math.abs(best.threshold - 0.5);
    if (value > best.value || (value === best.value && nearer)) best = { threshold, value };
  }
  return best;
}

/** Reads verdicts at a threshold on their probability. */
export function thresholdReader(threshold: number) {
  const read = <T extends ScoredStep>(steps: readonly T[]): T[] =>
    steps.map((step) =>
      step.unreadable
        ? step
        : { ...step, verdict: step.probability >= threshold ? (1 as const) : (0 as const) },
    );
  return { threshold, read };
}

/** A midpoint with low < result ≤ high even after rounding. */
function halfway(low: number, high: number): number {
  const middle = low + (high - low) / 2;
  return middle > low ? middle : high;
}
