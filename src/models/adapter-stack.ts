/**
 * The LoRA pairs of several adapters side by side, in the panels and the dtype that the kernels read: a forward may hold
 * tokens of all of them, and packs nothing but the pairs of experts. It holds the values that the adapters had when it was made.
 */
import type { StackedExperts } from '../ops/experts.js';
import { type LoraPair, packWeight, type StackedPairs, stackLora } from '../ops/gemm.js';
import type { Device } from '../runtime/device.js';
import type { DType, Tensor } from '../runtime/tensor.js';
import type { ExpertPlace } from '../weights/modules.js';
import type { Adapter } from './adapter.js';

/** Adapters begin at whole panels of the stack, which a device may fill up to as many outputs. */
const STEP = 32;
const whole = (count: number) => Math.ceil(count / STEP) * STEP;

/** Bytes of a stack of one adapter that has pairs A and B of these shapes, at most. */
export function stackBytes(
  pairs: readonly {
    readonly aShape: readonly number[];
    readonly bShape: readonly number[];
    readonly expert?: ExpertPlace;
  }[],
  dtype: DType,
): number {
  return pairs.reduce((sum, { aShape: [rank = 0, features = 0], bShape: [outputs = 0], expert }) => {
    if (expert) return sum + 4 * (rank * (features + outputs) + 1);
    return sum + (dtype === 'bf16' ? 2 : 4) * whole(rank) * (features + 1 + whole(outputs));
  }, 0);
}

/** The device and dtype of a stack, which are those of a decoder. */
export interface StackPlace {
  readonly device: Device;
  readonly dtype: DType;
}

export class AdapterStack {
  private readonly modules = new Map<string, StackedPairs>();
  private readonly joint = new Map<string, StackedExperts>();

  /** Holds its memory until `dispose`. */
  constructor(
    place: StackPlace,
    readonly adapters: readonly Adapter[],
  ) {
    const modules = adapters.flatMap(({ plan }) => plan.modules);
    const names = new Set(modules.flatMap(({ module, expert }) => (expert ? [] : [module])));
    const experts = new Set(modules.flatMap(({ expert }) => expert?.of ?? []));
    try {
      for (const module of names) this.modules.set(module, stackOf(place, module, adapters));
      for (const of of experts) this.joint.set(of, expertsOf(place, of, adapters));
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** The pairs of a module; undefined where no adapter has one. */
  pairs(module: string): StackedPairs | undefined {
    return this.modules.get(module);
  }

  /** Whether any adapter has pairs on experts. */
  get hasExperts(): boolean {
    return this.joint.size > 0;
  }

  /** The pairs of all experts, by their name, for `RoutedAdapters`; undefined likewise. */
  experts(of: string): StackedExperts | undefined {
    return this.joint.get(of);
  }

  dispose(): void {
    for (const pairs of [...this.modules.values(), ...this.joint.values()])
      for (const tensor of Object.values(pairs)) tensor.dispose();
    this.modules.clear();
    this.joint.clear();
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

/** The pairs of each adapter's experts one after the other, in f32 and of the largest rank: zeros where an adapter has less. */
function expertsOf({ device }: StackPlace, of: string, adapters: readonly Adapter[]): StackedExperts {
  const pairs = adapters.map((adapter) => adapter.pair(of));
  const { a, b } = pairs.find((pair) => pair !== undefined) as LoraPair;
  const [experts = 0, , features = 0] = a.value.shape;
  const outputs = b.value.shape[1] as number;
  const rankOf = (pair: LoraPair) => pair.a.value.shape[1] as number;
  const most = Math.max(...pairs.map((pair) => (pair ? rankOf(pair) : 0)));
  /** x as rows of `width`, each `rank` of them followed by zeros up to `most`. */
  const padded = (x: Tensor, rank: number, width: number): Tensor => {
    if (rank === most) return x;
    const count = x.size / width;
    const rows = Int32Array.from({ length: count }, (_, i) => Math.floor(i / rank) * most + (i % rank));
    const T = (count / rank) * most;
    return device.ops.scatter_rows({ x: x.reshape([count, width]), rows: device.tensor(rows), T }).y;
  };
  const joined = (shape: readonly [number, number], part: (pair: LoraPair) => Tensor) => {
    const size = experts * shape[0] * shape[1];
    const all = device.zeros([pairs.length * experts, ...shape]);
    pairs.forEach((pair, g) => {
      if (pair) device.ops.copy({ x: part(pair).reshape([size]), y: all.view(g * size, [size]) });
    });
    return device.keep(all);
  };
  const scales = Float32Array.from(
    { length: pairs.length * experts },
    (_, p) => pairs[Math.floor(p / experts)]?.scale ?? 0,
  );
  return device.scope(
    () => ({
      a: joined([most, features], (pair) => padded(pair.a.value, rankOf(pair), features)),
      b: joined([outputs, most], (pair) => padded(pair.b.value, rankOf(pair), 1)),
      scales: device.keep(device.tensor(scales)),
    }),
    'adapters',
  );
}
