/**
 * The paged cache of keys and values. A page holds PAGE_TOKENS tokens of one layer, one key tile of the attention
 * kernels, in an order that only the device's kernels know. Nothing here has a gradient.
 */
import type { Tensor } from '../runtime/tensor.js';
import type { HeadNorms } from './norm.js';
import type { Rotary } from './rope.js';

export const PAGE_TOKENS = 64;

/** Elements of a page: a cache is a tensor [pages, pageElements(…)] of the dtype of the activations. */
export function pageElements(kvHeads: number, headDim: number): number {
  return 2 * PAGE_TOKENS * kvHeads * Math.ceil(headDim / 16) * 16;
}

const heads = (t: Tensor, headDim: number) =>
  t.reshape([t.shape[0] as number, (t.shape[1] as number) / headDim, headDim]);

export interface CacheWriteOptions {
  readonly slots: Tensor;
  readonly headDim: number;
  readonly rotary?: Rotary | undefined;
}

export interface RotateWriteOptions extends CacheWriteOptions {
  readonly rotary: Rotary;
  readonly norms?: HeadNorms | undefined;
}

/**
 * Writes k and v [T, Hk·D] into `cache`, keys rotated by `rotary`, if given, with the bits of `rope`. slots i32 [T]: page · PAGE_TOKENS + place in the page, all different; −1
 * writes nothing. A slot outside the cache fails the queue (E_RANGE).
 */
export function cacheWrite(
  k: Tensor,
  v: Tensor,
  cache: Tensor,
  { slots, headDim, rotary }: CacheWriteOptions,
): void {
  const { cos, sin, positions } = rotary ?? {};
  k.device.ops.cache_write({ k: heads(k, headDim), v: heads(v, headDim), slots, cache, cos, sin, positions });
}

/**
 * q [T, Hq·D] as attention reads it, with keys and values written by `cacheWrite`, all in one launch. With `norms` each head of
 * q and k takes its RMSNorm before it is rotated.
 */
export function rotateWrite(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  cache: Tensor,
  { slots, headDim, rotary, norms }: RotateWriteOptions,
): Tensor {
  const { cos, sin, positions } = rotary;
  const { rotated } = k.device.ops.cache_write({
    k: heads(k, headDim),
    v: heads(v, headDim),
    q: heads(q, headDim),
    slots,
    cache,
    cos,
    sin,
    positions,
    k_weight: norms?.k.value,
    q_weight: norms?.q.value,
    eps: norms?.eps,
    rotated: true,
  });
  return (rotated as Tensor).reshape(q.shape);
}

export interface AttentionStepOptions
  extends Pick<PagedAttentionOptions, 'headDim' | 'pages' | 'lengths' | 'window' | 'scale'> {
  readonly rotary: Rotary;
  readonly norms?: HeadNorms | undefined;
}

/**
 * `rotateWrite` and `attentionPaged` in one op, with their bits, for a step of decoding: row r has the one query q[r], at key lengths[r] − 1, whose
 * position is the same number (rotary.positions is not read) and whose key and value [R, Hk·D] go to its place in pages[r], which no other row sees. A row of length 0 writes
 * nothing and gives 0.
 */
export function attentionStep(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  cache: Tensor,
  { headDim, pages, lengths, window, scale = 1 / Math.sqrt(headDim), rotary, norms }: AttentionStepOptions,
): Tensor {
  const { o } = q.device.ops.attention_step({
    q: heads(q, headDim),
    k: heads(k, headDim),
    v: heads(v, headDim),
    cache,
    pages,
    lengths,
    cos: rotary.cos,
    sin: rotary.sin,
    k_weight: norms?.k.value,
    q_weight: norms?.q.value,
    eps: norms?.eps,
    window,
    scale,
  });
  return o.reshape(q.shape);
}

/** Copies whole pages of `cache`, page from[c] to page to[c] (i32 [C]), in order. */
export function cacheCopy(cache: Tensor, from: Tensor, to: Tensor): void {
  cache.device.ops.cache_copy({ cache, from, to });
}

/**
 * The tokens of the next step of decoding, from the draws of a step: `tokens` and `lengths` [S] of its rows. Row r of
 * the next step is its row rows[r] (i32 [R]; −1: none, of length 0, in no slot), with the pages pages[r] [R, N]. Each
 * output i32 [R]. Not differentiable.
 */
export function advance(step: {
  readonly tokens: Tensor;
  readonly lengths: Tensor;
  readonly rows: Tensor;
  readonly pages: Tensor;
}): { readonly ids: Tensor; readonly positions: Tensor; readonly slots: Tensor; readonly lengths: Tensor } {
  const { tokens, lengths, rows, pages } = step;
  const made = tokens.device.ops.advance({ tokens, lengths, rows, pages });
  return { ids: made.ids, positions: made.positions, slots: made.slots, lengths: made.next_lengths };
}

export interface PagedAttentionOptions {
  readonly headDim: number;
  /** i32 [R + 1]: the queries of row r are query_offsets[r] … query_offsets[r + 1] − 1 of q. */
  readonly queryOffsets: Tensor;
  /** i32 [R, N]: the page of keys 64·i … 64·i + 63 of each row; not read if they are masked for every query of the row. */
  readonly pages: Tensor;
  /** i32 [R]: keys in the cache, the last of them that of the row's last query. A row of length 0 gives 0. */
  readonly lengths: Tensor;
  /** The visible range of a query is itself and the `window − 1` tokens before it. */
  readonly window?: number | undefined;
  /** Default 1/√headDim. */
  readonly scale?: number;
}

/**
 * Causal attention of q [T, Hq·D] over cached keys and values. Result as q; on the CPU a token's bits are those of
 * `attention` over its whole sequence. Errors: E_SHAPE, E_DTYPE; indices and lengths out of range fail the queue.
 */
export function attentionPaged(q: Tensor, cache: Tensor, options: PagedAttentionOptions): Tensor {
  const { headDim, queryOffsets, pages, lengths, window, scale = 1 / Math.sqrt(headDim) } = options;
  const { o } = q.device.ops.attention_paged({
    q: heads(q, headDim),
    cache,
    query_offsets: queryOffsets,
    pages,
    lengths,
    window,
    scale,
  });
  return o.reshape(q.shape);
}
