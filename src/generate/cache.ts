/** Keys and values of many sequences: for each layer a tensor of pages, which the attention kernels read. */
import type { AttendOptions, KeyValues } from '../architectures/architecture.js';
import { architectureOf } from '../architectures/table.js';
import type { Decoder } from '../models/decoder.js';
import {
  attentionPaged,
  attentionStep,
  cacheCopy,
  cacheWrite,
  pageElements,
  rotateWrite,
} from '../ops/cache.js';
import type { Tensor } from '../runtime/tensor.js';

/** The places of the tokens of one forward in the cache, and their visible keys. R rows, T tokens, N pages of the longest row. */
export interface CachePlaces {
  /** i32 [T]: page · 64 + place in the page. */
  readonly slots: Tensor;
  /** i32 [R + 1]: first token of each row. */
  readonly queryOffsets: Tensor;
  /** i32 [R, N] */
  readonly pages: Tensor;
  /** i32 [R]: tokens of each row up to its last one here. */
  readonly lengths: Tensor;
  /** Whether each row has one token here, which is not in the cache yet: a step of decoding. */
  readonly decodes: boolean;
}

/** The layers of a model, as the size of its cache depends on them. */
export interface CacheShape {
  readonly layers: readonly KeyValues[];
  /** Bytes of a page over all layers. */
  readonly pageBytes: number;
  /** The largest attention window of the layers; undefined: some layer has none. */
  readonly window: number | undefined;
}

export function cacheShape({ config, dtype }: Pick<Decoder, 'config' | 'dtype'>): CacheShape {
  const layers = architectureOf(config).keyValues(config);
  const elements = layers.reduce((sum, { heads, headDim }) => sum + pageElements(heads, headDim), 0);
  const windows = layers.map(({ window }) => window ?? Number.POSITIVE_INFINITY);
  const widest = Math.max(...windows);
  return {
    layers,
    pageBytes: elements * (dtype === 'bf16' ? 2 : 4),
    window: Number.isFinite(widest) ? widest : undefined,
  };
}

export class KeyValueCache {
  private readonly layers: readonly Tensor[];

  /** Holds `pages` pages until `dispose`. */
  constructor(
    private readonly decoder: Decoder,
    pages: number,
  ) {
    const { device, dtype } = decoder;
    const made: Tensor[] = [];
    try {
      for (const { heads, headDim } of cacheShape(decoder).layers)
        made.push(device.keep(device.empty([pages, pageElements(heads, headDim)], dtype)));
    } catch (error) {
      for (const tensor of made) tensor.dispose();
      throw error;
    }
    this.layers = made;
  }

  /** Copies whole pages, from[c] to to[c], in every layer. */
  copy(copies: readonly (readonly [from: number, to: number])[]): void {
    if (copies.length === 0) return;
    const { device } = this.decoder;
    device.scope(() => {
      const from = device.tensor(Int32Array.from(copies, ([page]) => page));
      const to = device.tensor(Int32Array.from(copies, ([, page]) => page));
      for (const layer of this.layers) cacheCopy(layer, from, to);
    });
  }

  /** Stores k and v [T, heads·headDim] of one layer, then computes attention of q [T, …] over all keys of the rows. */
  attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    { layer, headDim, window, rotary, norms }: AttendOptions,
    { slots, decodes, ...places }: CachePlaces,
  ): Tensor {
    const cache = this.layers[layer] as Tensor;
    if (rotary && decodes)
      return attentionStep(q, k, v, cache, { ...places, headDim, window, rotary, norms });
    if (!rotary) cacheWrite(k, v, cache, { slots, headDim });
    const queries = rotary ? rotateWrite(q, k, v, cache, { slots, headDim, rotary, norms }) : q;
    return attentionPaged(queries, cache, { ...places, headDim, window });
  }

  dispose(): void {
    for (const layer of this.layers) layer.dispose();
  }
}
