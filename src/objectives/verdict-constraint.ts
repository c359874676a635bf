import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

/**
 * The loss of a verdict. Let p₊ and p₋ be the probabilities of the two words, renormalised over the two, and y the
 * right one: `ce_two` −log p_y; `mass` −log(the words' probability together); `ce_full` −log-prob of the right word
 * over the whole vocabulary, which is the sum of these two; `margin` max(0, margin − (log-prob of the right − of the
 * wrong word)). They are averaged over all rows; `class_balanced_full` is `ce_full` and `class_balanced` is `ce_two`,
 * averaged over each class apart. `ce_two`, `class_balanced` and `margin` do not notice probability that goes to other
 * words.
 */
export type ConstraintForm =
  | 'class_balanced_full'
  | 'class_balanced'
  | 'ce_two'
  | 'ce_full'
  | 'mass'
  | 'margin';

const STATISTICS = [
  'positive_loss',
  'negative_loss',
  'acc_pos',
  'acc_neg',
  'positives',
  'negatives',
  'probability_right',
  'non_finite_rows',
] as const;

export type ConstraintStatistic = (typeof STATISTICS)[number];

export interface VerdictConstraintInputs {
  /** f32 [R]: log-probability of the word for "right"; a word of several tokens gives their sum. Differentiable. */
  readonly positive: Tensor;
  /** f32 [R]: log-probability of the word for "wrong", likewise. Differentiable. */
  readonly negative: Tensor;
  /** i32 [R]: 1 where the step is right, else 0. */
  readonly labels: Tensor;
  /** f32 [R]; absent: the mean over all rows, or over each class for the class-balanced forms. */
  readonly weights?: Tensor | undefined;
}

/**
 * The constraint of StepAMC (arXiv 2503.18432, equations 9 to 11) on the verdicts of labelled steps. Default
 * class_balanced_full, and 1 as the margin of `margin`.
 */
export function verdictConstraint(
  { positive, negative, labels, weights }: VerdictConstraintInputs,
  { form, margin }: { readonly form?: ConstraintForm; readonly margin?: number } = {},
): Objective<ConstraintStatistic> {
  const { ops } = positive.device;
  const inputs = { positive, negative, labels, weights };
  const { loss, dpositive, dnegative, stats } = ops.verdict_constraint({ ...inputs, form, margin });
  openTape()?.recordLoss(loss, [
    [positive, dpositive],
    [negative, dnegative],
  ]);
  return { loss, statistics: { names: STATISTICS, values: stats } };
}
