/** Keys and values of many sequences: for each layer a tensor of pages, which the attention kernels read. */
import type { AttendOptions, KeyValues, RecurrentStates } from '../../architectures/architecture.js';
import { architectureOf } from '../../architectures/table.js';
import type { Decoder, Past } from '../../models/decoder.js';
import {
  attentionPaged,
  attentionStep,
  cacheCopy,
  cacheWrite,
  pageElements,
  rotateWrite,
} from '../../ops/cache.js';
import { rmsNorm } from '../../ops/norm.js';
import type { RecurrentSequences } from '../../ops/recurrence.js';
import { isPartial, rope } from '../../ops/rope.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { Copy } from './pages.js';

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
  /** i32 [R]: where each row has its states, in a model with some; −1: nowhere. */
  readonly states: Tensor | undefined;
  /** Whether each row has one token here, which is not in the cache yet: a step of decoding. */
  readonly decodes: boolean;
}

/** The layers of a model, as the size of its cache depends on them. */
export interface CacheShape {
  readonly layers: readonly KeyValues[];
  /** States of layers that keep states instead of keys and values. */
  readonly states: readonly (RecurrentStates | undefined)[];
  /** Bytes of a page over all layers. */
  readonly pageBytes: number;
  /** Bytes of the states of a row over all layers. */
  readonly rowBytes: number;
  /** The largest attention window of the layers; undefined: some layer has none. */
  readonly window: number | undefined;
}

export function cacheShape({ config, dtype }: Pick<Decoder, 'config' | 'dtype'>): CacheShape {
  const architecture = architectureOf(config);
  const layers = architecture.keyValues(config);
  const states = architecture.states?.(config) ?? layers.map(() => undefined);
  const bytes = dtype === 'bf16' ? 2 : 4;
  const elements = layers.reduce((sum, { heads, headDim }) => sum + pageElements(heads, headDim), 0);
  const windows = layers.map(({ window }) => window ?? Number.POSITIVE_INFINITY);
  const widest = Math.max(...windows);
  return {
    layers,
    states,
    pageBytes: elements * bytes,
    rowBytes: states.reduce(
      (sum, own) => sum + (own ? bytes * sizeOf(own.convolution) + 4 * sizeOf(own.delta) : 0),
      0,
    ),
    window: Number.isFinite(widest) ? widest : undefined,
  };
}

const sizeOf = (shape: readonly number[]) => shape.reduce((product, extent) => product * extent, 1);

type KeptTensors = Readonly<Record<'convolution' | 'delta', Tensor>>;

export class KeyValueCache {
  private readonly layers: readonly (Tensor | undefined)[];
  private readonly states: readonly (KeptTensors | undefined)[];

  /** Holds `pages` pages, and `places` for the states of a row, until `dispose`. */
  constructor(
    private readonly decoder: Decoder,
    pages: number,
    places: number,
  ) {
    const { device, dtype } = decoder;
    const made: Tensor[] = [];
    try {
      const keep = (shape: readonly number[], stored: Tensor['dtype']) => {
        const tensor = device.keep(device.empty(shape, stored));
        made.push(tensor);
        return tensor;
      };
      const shape = cacheShape(decoder);
      this.layers = shape.layers.map(({ heads, headDim }) =>
        heads > 0 ? keep([pages, pageElements(heads, headDim)], dtype) : undefined,
      );
      this.states = shape.states.map(
        (own) =>
          own && {
            convolution: keep([places, ...own.convolution], dtype),
            delta: keep([places, ...own.delta], 'f32'),
          },
      );
    } catch (error) {
      for (const tensor of made) tensor.dispose();
      throw error;
    }
  }

  /** Copies whole pages, from[c] to to[c], in every layer. */
  copy(copies: readonly Copy[]): void {
    this.copyAll(copies, this.layers);
  }

  /** The same of the states of rows. */
  copyStates(copies: readonly Copy[]): void {
    this.copyAll(
      copies,
      this.states.flatMap((own) => (own ? [own.convolution, own.delta] : [])),
    );
  }

  private copyAll(copies: readonly Copy[], tensors: readonly (Tensor | undefined)[]): void {
    if (copies.length === 0) return;
    const { device } = this.decoder;
    device.scope(() => {
      const from = device.tensor(Int32Array.from(copies, ([place]) => place));
      const to = device.tensor(Int32Array.from(copies, ([, place]) => place));
      for (const tensor of tensors) {
        if (!tensor) continue;
        const places = tensor.shape[0] as number;
        cacheCopy(tensor.reshape([places, tensor.size / places]), from, to);
      }
    });
  }

  /** Stores k and v [T, heads·headDim] of one layer, then computes attention of q [T, …] over all keys of the rows. */
  attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    { layer, headDim, window, rotary, norms }: AttendOptions,
    { slots, decodes, states: _, ...places }: CachePlaces,
  ): Tensor {
    const cache = this.layers[layer] as Tensor;
    if (rotary && isPartial(rotary.cos, headDim)) {
      const turned = (x: Tensor, norm: 'q' | 'k') =>
        rope(norms ? rmsNorm(x, norms[norm], norms.eps) : x, headDim, rotary);
      cacheWrite(turned(k, 'k'), v, cache, { slots, headDim });
      return attentionPaged(turned(q, 'q'), cache, { ...places, headDim, window });
    }
    if (rotary && decodes)
      return attentionStep(q, k, v, cache, { ...places, headDim, window, rotary, norms });
    if (!rotary) cacheWrite(k, v, cache, { slots, headDim });
    const queries = rotary ? rotateWrite(q, k, v, cache, { slots, headDim, rotary, norms }) : q;
    return attentionPaged(queries, cache, { ...places, headDim, window });
  }

  /** The rows as the sequences of a layer with states, which they continue and leave there. */
  recurrence(layer: number, { states: slots, queryOffsets, lengths }: CachePlaces): RecurrentSequences {
    const kept = { ...(this.states[layer] as KeptTensors), slots: slots as Tensor, lengths };
    return { cuSeqlens: queryOffsets, kept };
  }

  /** The state of earlier tokens that a forward over the rows continues. */
  past(places: CachePlaces): Past {
    return {
      attend: (q, k, v, options) => this.attend(q, k, v, options, places),
      recurrence: (layer) => this.recurrence(layer, places),
    };
  }

  dispose(): void {
    for (const layer of this.layers) layer?.dispose();
    for (const own of this.states) {
      own?.convolution.dispose();
      own?.delta.dispose();
    }
  }
}
