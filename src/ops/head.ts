import { hasGrad, type Parameter } from '../autograd/parameters.js';
import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface HeadLogprobs {
  /** f32 [R]: natural log of the target's probability. */
  readonly logprobs: Tensor;
  /** f32 [R], nats. */
  readonly entropy: Tensor;
  /** f32 [R]: log-sum-exp of the logits. */
  readonly lse: Tensor;
  /** i32 [R]. */
  readonly argmax: Tensor;
}

export interface HeadOptions {
  readonly temperature?: number;
  /** Whether a gradient will come in through `entropy`; the backward then recomputes the vocabulary tiles. */
  readonly entropyGradient?: boolean;
}

/**
 * Log-probability of `targets` (i32 [R]) under softmax(x · Wᵀ / temperature), with entropy and arg-max; logits never
 * lie in memory. Under a frozen head the forward also accumulates E_p[W], so that the backward needs no GEMM.
 */
export function headLogprobs(
  x: Tensor,
  weight: Parameter,
  targets: Tensor,
  options: HeadOptions = {},
): HeadLogprobs {
  const { device } = x;
  const { ops } = device;
  const { temperature, entropyGradient = false } = options;
  const w = weight.value;
  const recording = tapeFor(x, weight);
  const byExpectation = recording !== undefined && !hasGrad(weight) && !entropyGradient;
  const { expectation, ...result } = ops.head_logprobs({
    x,
    w,
    targets,
    temperature,
    expectation: byExpectation,
  });
  const { logprobs, entropy, lse } = result;
  if (expectation) {
    recording?.record(logprobs, { targets, expectation }, (dlogprobs, saved, gradients) => {
      const { targets, expectation } = saved;
      const given = { dlogprobs, w, targets, expectation, temperature, dtype: x.dtype };
      gradients.add(x, ops.head_expectation_backward(given).dx);
    });
    return result;
  }
  recording?.recordAll([logprobs, entropy], { targets, x, lse, entropy }, (incoming, saved, gradients) => {
    const [dlogprobs = device.zeros(saved.lse.shape), dentropy] = incoming;
    const all = { ...saved, dlogprobs, dentropy, w, dw: weight.grad, temperature };
    const { dx } = ops.head_logprobs_backward(all);
    gradients.add(x, dx);
  });
  return result;
}

/** Logits of the chosen `tokens` (i32 [R, C]) alone, f32 [R, C]. */
export function headSelect(x: Tensor, weight: Parameter, tokens: Tensor, temperature = 1): Tensor {
  const { ops } = x.device;
  const w = weight.value;
  const { logits } = ops.head_select({ x, w, tokens, temperature });
  tapeFor(x, weight)?.record(logits, { x, tokens }, (dlogits, saved, gradients) => {
    const { dx } = ops.head_select_backward({ ...saved, dlogits, w, dw: weight.grad, temperature });
    gradients.add(x, dx);
  });
  return logits;
}

/**
 * All logits, f32 [R, V]: for decoding, and for what compares whole distributions. The gradient is rounded to the dtype of `x`, as
 * those of other products are.
 */
export function headLogits(x: Tensor, weight: Parameter, temperature = 1): Tensor {
  const { ops } = x.device;
  const w = weight.value;
  const { logits } = ops.head_logits({ x, w, temperature });
  tapeFor(x, weight)?.record(logits, { x }, (dlogits, saved, gradients) => {
    const scaled = temperature === 1 ? dlogits : ops.scale({ x: dlogits, factor: 1 / temperature }).y;
    const dy = scaled.dtype === saved.x.dtype ? scaled : ops.cast({ x: scaled, dtype: saved.x.dtype }).y;
    if (gradients.wants(x)) gradients.add(x, ops.linear_dx({ dy, w }).dx);
    if (weight.grad) ops.linear_dw({ x: saved.x, dy, dw: weight.grad });
  });
  return logits;
}
