/** Credit over ragged sequences: advantages, their normalisation, and sums over spans. */
import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface GaeOptions {
  /** Default 1. */
  readonly gamma?: number;
  /** Default 0.95. */
  readonly lambda?: number;
  /** f32 [B]: value after the last token of sequences that were cut; absent: 0. */
  readonly lastValues?: Tensor | undefined;
}

/**
 * Generalised advantage estimation (arXiv 1506.02438): δ_t = r_t + γ·V_{t+1} − V_t, A_t = δ_t + γλ·A_{t+1}, returns
 * A + V. f32 [T] each. Not differentiable.
 *
 * @param rewards f32 [T], at any token
 * @param values f32 [T]
 * @param cuSeqlens i32 [B + 1]: where each sequence begins
 */
export function gae(
  rewards: Tensor,
  values: Tensor,
  cuSeqlens: Tensor,
  { gamma, lambda: lam, lastValues: last_values }: GaeOptions = {},
): { readonly advantages: Tensor; readonly returns: Tensor } {
  return rewards.device.ops.gae({ rewards, values, cu_seqlens: cuSeqlens, last_values, gamma, lam });
}

export interface WhitenOptions {
  /** f32 [T]: rows of 0 neither count nor are changed from 0. */
  readonly mask?: Tensor | undefined;
  /** Divide by n − 1 (default) or n. */
  readonly bessel?: boolean;
  /** Subtract the mean (default). */
  readonly shiftMean?: boolean;
  /** Added to the variance. Default 1e-8. */
  readonly eps?: number;
}

/** (x − mean) / √(variance + eps), f32 [T]. Not differentiable. */
export function whiten(x: Tensor, { mask, bessel, shiftMean, eps }: WhitenOptions = {}): Tensor {
  return x.device.ops.whiten({ x, mask, bessel, shift_mean: shiftMean, eps }).y;
}

/** Baselines within a group of answers to one prompt. */
export type GroupBaseline =
  /** (R − mean) / (sample deviation + eps): GRPO, arXiv 2402.03300 */
  | 'grpo'
  /** R − mean: Dr. GRPO, arXiv 2503.20783 */
  | 'mean'
  /** R − mean of the others: RLOO, arXiv 2402.14740 */
  | 'leave_one_out';

/**
 * Advantages of answers within their groups, f32 [n]; a group of equals gives 0.
 * Default baseline grpo, eps 1e-4. Not differentiable.
 *
 * @param rewards f32 [n]
 * @param offsets i32 [groups + 1]: where each group begins
 */
export function groupAdvantages(
  rewards: Tensor,
  offsets: Tensor,
  { baseline, eps }: { readonly baseline?: GroupBaseline; readonly eps?: number } = {},
): Tensor {
  return rewards.device.ops.group_advantages({ rewards, offsets, kind: baseline, eps }).advantages;
}

/**
 * Sum of x over each span, or its mean: f32 [S]. Differentiable. Spans may overlap, as steps do with their answer.
 *
 * @param x f32 [T]
 * @param spans i32 [S, 2]: begin, end exclusive
 * @param weights f32 [S]: each sum is multiplied by its own; no gradient flows into them
 */
export function spanSum(
  x: Tensor,
  spans: Tensor,
  { mean, weights }: { readonly mean?: boolean; readonly weights?: Tensor | undefined } = {},
): Tensor {
  const { ops } = x.device;
  const { y } = ops.span_sum({ x, spans, weights, mean });
  tapeFor(x)?.record(y, weights ? { spans, weights } : { spans }, (dy, saved, gradients) => {
    gradients.add(x, ops.span_spread({ ...saved, dy, T: x.size, mean }).dx);
  });
  return y;
}
