import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface AttentionOptions {
  readonly headDim: number;
  /** i32 [B + 1]: where each sequence of the ragged batch begins. */
  readonly cuSeqlens: Tensor;
  /** i32 [T]: 0 on the trunk; a token of branch b sees the trunk before it and branch b alone. */
  readonly branch?: Tensor | undefined;
  readonly causal?: boolean;
  /** A query sees itself and the `window − 1` tokens before it. */
  readonly window?: number | undefined;
  /** Default 1/√headDim. */
  readonly scale?: number;
}

/** Softmax attention over each sequence; q [T, Hq·D], k and v [T, Hk·D] with Hq a multiple of Hk. Result as q. */
export function attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions): Tensor {
  const { device } = q;
  const { headDim, cuSeqlens, branch, causal = true, window = 0, scale = headDim ** -0.5 } = options;
  const heads = (t: Tensor) => t.reshape([t.shape[0] as number, (t.shape[1] as number) / headDim, headDim]);
  const scalars = [causal ? 1 : 0, window, scale];
  const inputs = [heads(q), heads(k), heads(v)] as const;
  const [o, lse] = device.enqueue(device.signature('attention'), [...inputs, cuSeqlens, branch], scalars) as [
    Tensor,
    Tensor,
  ];
  const y = o.reshape(q.shape);
  const tape = openTape();
  if (!tape || !(tape.tracks(q) || tape.tracks(k) || tape.tracks(v))) return y;

  const saved = [...inputs, o, lse, cuSeqlens].map((tensor) => tape.save(tensor));
  const [savedQ, savedK, savedV, savedO, savedLse, savedCu] = saved;
  const savedBranch = branch && tape.save(branch);
  tape.record([y], savedBranch ? [...saved, savedBranch] : saved, ([dy], gradients) => {
    const [dq, dk, dv] = device.enqueue(
      device.signature('attention_backward'),
      [heads(dy as Tensor), savedQ, savedK, savedV, savedO, savedLse, savedCu, savedBranch],
      scalars,
    ) as [Tensor, Tensor, Tensor];
    for (const [input, gradient] of [
      [q, dq],
      [k, dk],
      [v, dv],
    ] as const) {
      if (gradients.wants(input)) gradients.add(input, gradient.reshape(input.shape));
    }
  });
  return y;
}
