import { tapeFor } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';

/** The relative positions of one layer: P buckets of distances, half of them for keys behind the query. */
export interface RelativePositions {
  /** [P, H·D], added to the query's side, q_i·positionKeys of the bucket b of i − j. */
  readonly positionKeys: Tensor;
  /** [P, H·D], added to the key's side, k_j·positionQueries of the same bucket. */
  readonly positionQueries: Tensor;
  /** i32 [M], see `logBuckets`: M is at least the length of every sequence. */
  readonly buckets: Tensor;
}

export interface DisentangledAttentionOptions extends RelativePositions {
  readonly headDim: number;
  /** i32 [B + 1]: where each sequence of the ragged batch begins. */
  readonly cuSeqlens: Tensor;
  /** Default 1/√(3·headDim): scores are sums of three products. */
  readonly scale?: number;
}

/**
 * DeBERTa's attention (arXiv 2006.03654) over each sequence, in both directions; q, k and v [T, H·D]. Result as q. The biases by distance
 * are made and used tile by tile; no matrix of scores is held.
 */
export function disentangledAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: DisentangledAttentionOptions,
): Tensor {
  const { ops } = q.device;
  const { headDim, positionQueries, positionKeys, buckets, cuSeqlens } = options;
  const { scale = 1 / Math.sqrt(3 * headDim) } = options;
  const heads = (t: Tensor) => t.reshape([t.shape[0] as number, (t.shape[1] as number) / headDim, headDim]);
  const inputs = {
    q: heads(q),
    k: heads(k),
    v: heads(v),
    pos_q: heads(positionQueries),
    pos_k: heads(positionKeys),
    buckets,
    cu_seqlens: cuSeqlens,
  };
  const { o, lse } = ops.disentangled_attention({ ...inputs, scale });
  const y = o.reshape(q.shape);
  const tape = tapeFor(q, k, v, positionQueries, positionKeys);
  tape?.record(y, { ...inputs, o, lse }, (dy, saved, gradients) => {
    const d = ops.disentangled_attention_backward({ ...saved, do: heads(dy), scale });
    for (const [input, gradient] of [
      [q, d.dq],
      [k, d.dk],
      [v, d.dv],
      [positionQueries, d.dpos_q],
      [positionKeys, d.dpos_k],
    ] as const) {
      gradients.add(input, gradient.reshape(input.shape));
    }
  });
  return y;
}

/**
 * The bucket of each distance 0 … `count` − 1, counted from that of distance 0: the distance itself up to `span`/2, then by its
 * logarithm so that `longest` − 1 falls into the last of `span`. Rounded as transformers rounds, in f32.
 */
export function logBuckets(count: number, span: number, longest: number): Int32Array<ArrayBuffer> {
  const { fround, log } = Math;
  const middle = Math.floor(span / 2);
  const whole = fround(log(fround((longest - 1) / middle)));
  return Int32Array.from({ length: count }, (_, distance) => {
    if (distance <= middle) return distance;
    const share = fround(fround(log(fround(distance / middle))) / whole);
    return Math.ceil(fround(share * (middle - 1))) + middle;
  });
}
