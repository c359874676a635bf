/**
 * Frozen weights of layers that the processes of a machine divide among them, as in FSDP and ZeRO stage 3 (arXiv
 * 1910.02054). A layer is gathered while the one before it runs, and is whole while it runs. The gathered bytes are
 * those that one process would hold, so results have the same bits.
 */
import type { Parameter } from '../autograd/parameters.js';
import { openTape } from '../autograd/tape.js';
import { attempt } from '../native/attempt.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import type { WeightSpec } from '../weights/modules.js';

/** The processes that hold the layers together. All of them run the same layers in the same order. */
export interface LayerHolders {
  /** Arguments of `all_gather`. */
  readonly communicator: number;
  readonly rank: number;
  readonly size: number;
  /** Whether a layer is gathered while the one before it runs: two are whole then. Default: when it runs. */
  readonly ahead?: boolean;
}

/** Weights and parts begin at multiples of so many elements, where vectors do. */
const ALIGNED = 64;

interface Place {
  readonly layer: number;
  readonly offset: number;
  readonly shape: readonly number[];
  /** Whether the weight is read together with others, as one. */
  readonly isPart: boolean;
}

/** The layer of a weight, or of an adapter's tensor for it; undefined outside of layers. */
export function layerNumber(name: string): number | undefined {
  const [, layer] = /\.layers?\.(\d+)\./.exec(name) ?? [];
  return layer === undefined ? undefined : Number(layer);
}

/** The layer of a weight that is divided: a matrix of a linear module within one. */
function layerOf({ name, shape, kind }: WeightSpec): number | undefined {
  return kind === 'linear' && shape.length === 2 ? layerNumber(name) : undefined;
}

/** Elements of each layer, with what aligns them, and where its weights lie. */
export function layerPlaces(specs: readonly WeightSpec[]): {
  readonly sizes: readonly number[];
  readonly places: ReadonlyMap<string, Place>;
} {
  const sizes: number[] = [];
  const places = new Map<string, Place>();
  for (const spec of specs) {
    const layer = layerOf(spec);
    if (layer === undefined) continue;
    const { name, shape, expert } = spec;
    const offset = sizes[layer] ?? 0;
    places.set(name, { layer, offset, shape, isPart: expert !== undefined });
    // Experts are one weight, without gaps.
    if (expert?.index === 0)
      places.set(`${expert.of}.weight`, { layer, offset, shape: [expert.count, ...shape], isPart: false });
    const end = offset + product(shape);
    sizes[layer] = expert && expert.index + 1 < expert.count ? end : aligned(end);
  }
  return { sizes, places };
}

/** Elements of a layer that each of `size` processes holds. */
export const partOf = (elements: number, size: number) => aligned(Math.ceil(elements / size));

export class ShardedLayers {
  private readonly places: ReadonlyMap<string, Place>;
  /** This process's part of each layer. */
  private readonly parts: readonly Tensor[];
  /** Whole weights of the running layer. */
  private readonly whole = new Map<string, Parameter>();
  /** The layer that ran last. */
  private last: number | undefined;
  /** Gathered ahead of its use. */
  private next: { readonly layer: number; readonly all: Tensor } | undefined;

  /** @param dtype in which the weights are held */
  constructor(
    private readonly device: Device,
    dtype: 'f32' | 'bf16',
    specs: readonly WeightSpec[],
    private readonly holders: LayerHolders,
  ) {
    const { sizes, places } = layerPlaces(specs);
    this.places = places;
    this.parts = sizes.map((elements) => device.keep(device.zeros([partOf(elements, holders.size)], dtype)));
  }

  has(name: string): boolean {
    return this.places.has(name);
  }

  /** Takes this process's part of a weight, row-major and of the dtype that is held. */
  store(name: string, value: Tensor): void {
    const { layer, offset, shape } = this.places.get(name) as Place;
    const part = this.parts[layer] as Tensor;
    const first = this.holders.rank * part.size;
    const begin = Math.max(offset, first);
    const end = Math.min(offset + product(shape), first + part.size);
    if (begin >= end) return;
    const [from, into] = [value.view(begin - offset, [end - begin]), part.view(begin - first, [end - begin])];
    this.device.ops.copy({ x: from, y: into });
    from.dispose();
    into.dispose();
  }

  /** A weight of the layer that runs. */
  get(name: string): Parameter | undefined {
    return this.whole.get(name);
  }

  /** Runs a layer while its weights are whole. A tape that records it keeps them so until its backward has run. */
  during<Result>(layer: number, run: () => Result): Result {
    const { device, holders, places, whole } = this;
    const all = this.gathered(layer) ?? this.gather(layer, false);
    const following = followingLayer(this.last, layer, this.parts.length);
    this.last = layer;
    if (holders.ahead && following !== undefined)
      this.next = { layer: following, all: this.gather(following, true) };
    for (const [name, place] of places)
      if (place.layer === layer && !place.isPart)
        whole.set(name, { name, value: device.keep(all.view(place.offset, place.shape)) });
    const held = [all, ...[...whole.values()].map(({ value }) => value)];
    const letGo = () => {
      for (const tensor of held) tensor.dispose();
    };
    try {
      return run();
    } finally {
      whole.clear();
      const tape = openTape();
      if (tape) tape.hold({ dispose: letGo });
      else letGo();
    }
  }

  dispose(): void {
    // Those who wait for a device that has failed hear of that.
    attempt(() => this.gathered(undefined));
    for (const part of this.parts) part.dispose();
  }

  /** The layer gathered ahead, if it is this one; another is freed. */
  private gathered(layer: number | undefined): Tensor | undefined {
    const { next, device, holders } = this;
    if (!next) return undefined;
    this.next = undefined;
    let isWanted = false;
    try {
      device.ops.arrived({ y: next.all, communicator: holders.communicator });
      isWanted = next.layer === layer;
    } finally {
      if (!isWanted) next.all.dispose();
    }
    return isWanted ? next.all : undefined;
  }

  private gather(layer: number, beside: boolean): Tensor {
    const { device, holders } = this;
    const part = this.parts[layer] as Tensor;
    const all = device.keep(device.empty([holders.size, part.size], part.dtype));
    device.ops.all_gather({ x: part, y: all, communicator: holders.communicator, beside });
    return all;
  }
}

/** The layer that runs after `layer`: a forward goes up, a backward down. Undefined behind the last of either. */
export function followingLayer(last: number | undefined, layer: number, count: number): number | undefined {
  const isUp = last === layer - 1 || (last !== layer + 1 && layer === 0);
  const isDown = last === layer + 1 || (last !== layer - 1 && layer === count - 1);
  const next = isUp ? layer + 1 : isDown ? layer - 1 : undefined;
  return next !== undefined && next >= 0 && next < count ? next : undefined;
}

const aligned = (elements: number) => Math.ceil(elements / ALIGNED) * ALIGNED;
const product = (shape: readonly number[]) => shape.reduce((total, extent) => total * extent, 1);
