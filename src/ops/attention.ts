import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

export interface AttentionOptions {
  readonly headDim: number;
  /** i32 [B + 1]: where each sequence of the ragged batch begins. */
  readonly cuSeqlens: Tensor;
  /** i32 [T]: 0 on the trunk. Only the trunk before it and branch b are visible to a token of branch b. */
  readonly branch?: Tensor | undefined;
  /** Default true. */
  readonly causal?: boolean;
  /** The visible range of a query is itself and the `window − 1` tokens before it. */
  readonly window?: number | undefined;
  /** Default 1/√headDim. */
  readonly scale?: number;
}

/** Softmax attention over each sequence; q [T, Hq·D], k and v [T, Hk·D] with Hq a multiple of Hk. Result as q. */
export function attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions): Tensor {
  const { ops } = q.device;
  const { headDim, cuSeqlens, branch, causal, window, scale = 1 / Math.sqrt(headDim) } = options;
  const heads = (t: Tensor) => t.reshape([t.shape[0] as number, (t.shape[1] as number) / headDim, headDim]);
  const [qs, ks, vs, cu_seqlens] = [heads(q), heads(k), heads(v), cuSeqlens];
  const { o, lse } = ops.attention({ q: qs, k: ks, v: vs, cu_seqlens, branch, causal, window, scale });
  const y = o.reshape(q.shape);
  tapeFor(q, k, v)?.record(y, { q: qs, k: ks, v: vs, cu_seqlens, branch, o, lse }, (dy, saved, gradients) => {
    const { dq, dk, dv } = ops.attention_backward({ ...saved, do: heads(dy), causal, window, scale });
    gradients.add(q, dq.reshape(q.shape));
    gradients.add(k, dk.reshape(k.shape));
    gradients.add(v, dv.reshape(v.shape));
  });
  return y;
}
