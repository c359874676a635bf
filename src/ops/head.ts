import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import { WANTED } from '../runtime/device.js';
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
  const { temperature = 1, entropyGradient = false } = options;
  const tape = openTape();
  const recording = tape && (tape.tracks(x) || weight.grad !== undefined);
  const byExpectation = recording && !weight.grad && !entropyGradient;
  const [logprobs, entropy, lse, argmax, expectation] = device.enqueue(
    device.signature('head_logprobs'),
    [
      x,
      weight.value,
      targets,
      undefined,
      undefined,
      undefined,
      undefined,
      byExpectation ? WANTED : undefined,
    ],
    [temperature],
  ) as [Tensor, Tensor, Tensor, Tensor, Tensor | undefined];
  const result = { logprobs, entropy, lse, argmax };
  if (!recording) return result;

  const bf16 = x.dtype === 'bf16' ? 1 : 0;
  const savedTargets = tape.save(targets);
  if (expectation) {
    const savedExpectation = tape.save(expectation);
    tape.record([logprobs], [savedTargets, savedExpectation], ([dlogprobs], gradients) => {
      const op = device.signature('head_expectation_backward');
      const tensors = [dlogprobs, weight.value, savedTargets, savedExpectation];
      gradients.add(x, device.enqueue(op, tensors, [temperature, bf16])[0] as Tensor);
    });
    return result;
  }
  const [savedX, savedLse, savedEntropy] = [tape.save(x), tape.save(lse), tape.save(entropy)];
  tape.record([logprobs, entropy], [savedTargets, savedX, savedLse, savedEntropy], (incoming, gradients) => {
    const rows = savedLse.shape;
    const dlogprobs = incoming[0] ?? device.zeros(rows);
    const [dx] = device.enqueue(
      device.signature('head_logprobs_backward'),
      [dlogprobs, incoming[1], savedX, weight.value, savedTargets, savedLse, savedEntropy, weight.grad],
      [temperature],
    );
    if (gradients.wants(x)) gradients.add(x, dx as Tensor);
  });
  return result;
}

/** Logits of the chosen `tokens` (i32 [R, C]) alone, f32 [R, C]. */
export function headSelect(x: Tensor, weight: Parameter, tokens: Tensor, temperature = 1): Tensor {
  const { device } = x;
  const op = device.signature('head_select');
  const logits = device.enqueue(op, [x, weight.value, tokens], [temperature])[0] as Tensor;
  const tape = openTape();
  if (!tape || !(tape.tracks(x) || weight.grad)) return logits;
  const [savedX, savedTokens] = [tape.save(x), tape.save(tokens)];
  tape.record([logits], [savedX, savedTokens], ([dlogits], gradients) => {
    const [dx] = device.enqueue(
      device.signature('head_select_backward'),
      [dlogits, savedX, weight.value, savedTokens, weight.grad],
      [temperature],
    );
    if (gradients.wants(x)) gradients.add(x, dx as Tensor);
  });
  return logits;
}

/** All logits of few rows, f32 [R, V]: for decoding and tests. Not differentiable. */
export function headLogits(x: Tensor, weight: Parameter, temperature = 1): Tensor {
  const { device } = x;
  return device.enqueue(device.signature('head_logits'), [x, weight.value], [temperature])[0] as Tensor;
}
