import type { Tensor } from '../runtime/tensor.js';

/**
 * Puts a weight [N, K] into its place among those of `experts` experts, which are one tensor [E, N, K]: all of one layout (packed,
 * quantised or neither), one after the other. Without `stack` makes that tensor, whose other weights are undefined.
 */
export function stackWeight(w: Tensor, expert: number, experts: number, stack?: Tensor): Tensor {
  return w.device.ops.stack_weight({ w, E: experts, expert, stack }).stack;
}

/** The weight [N, K] of one expert of [E, N, K]. Shares the buffer. */
export function expertWeight(stack: Tensor, expert: number): Tensor {
  const [, n = 0, k = 0] = stack.shape;
  return stack.view(expert * n * k, [n, k]);
}
