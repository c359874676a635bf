/**
 * The LoRA pairs of several adapters side by side, in the panels and the dtype that the kernels read: a forward may hold
 * tokens of all of them, and packs nothing. It holds the values that the adapters had when it was made.
 */
import { packWeight, type StackedPairs, stackLora } from '../ops/gemm.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import type { Adapter } from './adapter.js';

/** Adapters begin at whole panels of the stack, which a device may fill up to as many outputs. */
const STEP = 32;
const whole = (count: number) => Math.ceil(count / STEP) * STEP;

/** Bytes of a stack of one adapter that has pairs A and B of these shapes, at most. */
export function stackBytes(
  pairs: readonly { readonly aShape: readonly number[]; readonly bShape: readonly number[] }[],
  dtype: DType,
): number {
  const elements = pairs.reduce((sum, { aShape: [rank = 0, features = 0], bShape: [outputs = 0] }) => {
    return sum + whole(rank) * (features + 1 + whole(outputs));
  }, 0);
  return elements * (dtype === 'bf16' ? 2 : 4);
}

/** Where a stack lies: the device and the dtype of a decoder. */
export interface StackPlace {
  readonly device: Device;
  readonly dtype: DType;
}

export class AdapterStack {
  private readonly modules = new Map<string, StackedPairs>();

  /** Holds its memory until `dispose`. */
  constructor(
    place: StackPlace,
    readonly adapters: readonly Adapter[],
  ) {
    const names = new Set(adapters.flatMap(({ plan }) => plan.modules.map(({ module }) => module)));
    try {
      for (const module of names) this.modules.set(module, stackOf(place, module, adapters));
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** The pairs of a module; undefined where no adapter has one. */
  pairs(module: string): StackedPairs | undefined {
    return this.modules.get(module);
  }

  dispose(): void {
    for (const pairs of this.modules.values()) for (const tensor of Object.values(pairs)) tensor.dispose();
    this.modules.clear();
  }
}

function stackOf({ device, dtype }: StackPlace, module: string, adapters: readonly Adapter[]): StackedPairs {
  const pairs = adapters.map((adapter) => adapter.pair(module));
  const ranks = new Int32Array(2 * pairs.length);
  let end = 0;
  pairs.forEach((pair, g) => {
    const rank = pair?.a.value.shape[0] ?? 0;
    ranks.set([end, end + rank], 2 * g);
    end += whole(rank);
  });
  const [first] = pairs.filter((pair) => pair !== undefined);
  const [features, outputs] = [first?.a.value.shape[1] as number, first?.b.value.shape[0] as number];
  return device.scope(() => {
    const packed = (shape: readonly number[]): Tensor => packWeight(device.zeros(shape), dtype);
    const made = {
      a: packed([end, features]),
      b: packed([outputs, end]),
      ranks: device.tensor(ranks, [pairs.length, 2]),
      scales: device.tensor(Float32Array.from(pairs, (pair) => pair?.scale ?? 0)),
    };
    pairs.forEach((pair, g) => {
      if (pair) stackLora(pair, made, ranks[2 * g] as number);
    });
    for (const tensor of Object.values(made)) device.keep(tensor);
    return made;
  }, 'adapters');
}
