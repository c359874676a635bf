/**
 * The gradient of an optimizer batch out of those of its shards, in the fixed order of their tree, on this process and all others:
 * through host memory and the sockets of the job, or on the device, where a carrier moves the bytes. The bits are the same.
 */
import type { TrainedParameters } from '../autograd/parameters.js';
import type { Carrier } from '../cluster/carriers.js';
import type { Cluster } from '../cluster/cluster.js';
import {
  addFloats,
  addTree,
  joinNeighbours,
  runsOf,
  type ShardSum,
  type SumOf,
  shardsOf,
} from '../cluster/shards.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import { type Bucket, bucketsOf } from './buckets.js';
import { sliceLength } from './slices.js';

/** Of one flat buffer of gradients. */
export interface GradientSum {
  /** What the buffer holds of `layer` and later ones is that of the shard; the backward of earlier ones may still run. */
  passed(shard: number, layer: number): void;
  /** Takes what the buffer holds as the gradient of a shard. */
  add(shard: number): Promise<void>;
  /** Once all shards of this process are added: puts the sum over those of all processes into the buffer. */
  finish(): Promise<void>;
}

/** @param isSliced whether a carrier need bring each process the slice alone that its optimizer updates */
export function gradientSum(
  parameters: TrainedParameters,
  shards: number,
  cluster: Cluster | undefined,
  carrier: Carrier | undefined,
  isSliced = false,
): GradientSum {
  if (!cluster) return new OwnSum(parameters);
  return carrier
    ? new CarriedSum(parameters, shards, cluster, carrier, isSliced)
    : new HostSum(parameters, shards, cluster);
}

/** Of one process, which computes all shards. */
class OwnSum implements GradientSum {
  private sums: ShardSum[] = [];

  constructor(private readonly parameters: TrainedParameters) {}

  passed(): void {}

  async add(shard: number): Promise<void> {
    const values = await this.parameters.grads.readFloats();
    this.sums = joinNeighbours([...this.sums, { first: shard, count: 1, values }], addFloats);
  }

  async finish(): Promise<void> {
    this.parameters.grads.write(addTree(this.sums, addFloats));
  }
}

interface Part extends Bucket {
  readonly give: (shards: Promise<readonly ShardSum[]>) => void;
  readonly sum: Promise<Float32Array>;
}

/** Through the sockets of the job, a bucket after the other, as the last backward of this process completes them. */
class HostSum implements GradientSum {
  /** Of the shards before the last one. */
  private earlier: ShardSum[] = [];
  private readonly last: number;
  private readonly parts: readonly Part[];
  private given = 0;

  constructor(
    private readonly parameters: TrainedParameters,
    shards: number,
    private readonly cluster: Cluster,
  ) {
    this.last = shardsOf(shards, cluster.rank, cluster.size).end - 1;
    // All are asked for before any other exchange: processes call them in the same order, whenever they have their parts.
    this.parts = bucketsOf(parameters).map((bucket) => {
      let give: Part['give'] = () => {};
      const own = new Promise<readonly ShardSum[]>((resolve) => {
        give = resolve;
      });
      const sum = cluster.sum(own, bucket.end - bucket.begin);
      sum.catch(() => {}); // finish() hears of it
      return { ...bucket, give, sum };
    });
  }

  passed(shard: number, layer: number): void {
    if (shard === this.last) this.giveDownTo(layer);
  }

  async add(shard: number): Promise<void> {
    if (shard === this.last) return this.giveDownTo(-1);
    const values = await this.parameters.grads.readFloats();
    this.earlier = joinNeighbours([...this.earlier, { first: shard, count: 1, values }], addFloats);
  }

  async finish(): Promise<void> {
    const { parts, parameters, cluster } = this;
    // Of a process without a shard.
    for (; this.given < parts.length; this.given++) parts[this.given]?.give(Promise.resolve([]));
    await cluster.waiting.during(Promise.all(parts.map(({ sum }) => sum)));
    for (const { begin, end, sum } of parts) {
      const window = parameters.grads.view(begin, [end - begin]);
      window.write(await sum);
      window.dispose();
    }
  }

  private giveDownTo(layer: number): void {
    for (; (this.parts[this.given]?.layer ?? -2) >= layer; this.given++) {
      const part = this.parts[this.given] as Part;
      part.give(this.shardsOfPart(part));
    }
  }

  private async shardsOfPart({ begin, end }: Bucket): Promise<readonly ShardSum[]> {
    const window = this.parameters.grads.view(begin, [end - begin]);
    const read = window.readFloats();
    window.dispose();
    const values = await read;
    // Copies, since what is given to a sum is given away.
    const earlier = this.earlier.map((sum) => ({ ...sum, values: sum.values.slice(begin, end) }));
    return joinNeighbours([...earlier, { first: this.last, count: 1, values }], addFloats);
  }
}

/** Elements of a slice are a multiple of it, so that all begin where vectors do. */
const ALIGNED = 64;

/**
 * A reduce-scatter and, unless the optimizer updates that slice alone, an all-gather: every process gets the slice of its number from
 * all, adds it, and all get all slices. The
 * bytes of a ring, and an order that no carrier decides.
 */
class CarriedSum implements GradientSum {
  private sums: SumOf<Tensor>[] = [];
  private readonly device: Device;
  /** Elements of a slice. */
  private readonly slice: number;

  constructor(
    private readonly parameters: TrainedParameters,
    private readonly shards: number,
    private readonly cluster: Pick<Cluster, 'rank' | 'size' | 'waiting'>,
    private readonly carrier: Carrier,
    private readonly isSliced: boolean,
  ) {
    this.device = parameters.device;
    this.slice = isSliced
      ? sliceLength(parameters.size, cluster.size)
      : Math.ceil(parameters.size / cluster.size / ALIGNED) * ALIGNED;
  }

  passed(): void {}

  async add(shard: number): Promise<void> {
    const { device, parameters } = this;
    const values = this.row();
    device.scope(() => void device.ops.copy({ x: parameters.grads, y: values.view(0, [parameters.size]) }));
    this.sums = joinNeighbours([...this.sums, { first: shard, count: 1, values }], (left, right) => {
      device.ops.add({ x: left, y: right, z: left });
      right.dispose();
      return left;
    });
  }

  async finish(): Promise<void> {
    const { device, parameters, cluster, slice, carrier } = this;
    const { size } = cluster;
    const { communicator } = carrier;
    const { pairs, root, rows } = additions(this.shards, size);
    const own = this.sums.map(({ values }) => values);
    while (own.length < rows) own.push(this.row());
    device.scope(() => {
      const arrived = device.empty([rows * size, slice]);
      own.forEach((x, i) => {
        const y = arrived.view(i * size * slice, [size, slice]);
        device.ops.all_to_all({ x: x.view(0, [size, slice]), y, communicator });
      });
      const order = device.tensor(Int32Array.from(pairs.flat()), [pairs.length, 2]);
      const { y: sum } = device.ops.sum_slices({ x: arrived, pairs: order, root });
      if (this.isSliced) {
        const begin = Math.min(parameters.size, cluster.rank * slice);
        const length = Math.min(slice, parameters.size - begin);
        if (length > 0)
          device.ops.copy({ x: sum.view(0, [length]), y: parameters.grads.view(begin, [length]) });
        return;
      }
      const all = device.empty([size, slice]);
      device.ops.all_gather({ x: sum, y: all, communicator });
      device.ops.copy({ x: all.view(0, [parameters.size]), y: parameters.grads });
    }, 'gradients of all processes');
    for (const row of own) row.dispose();
    this.sums = [];
    await cluster.waiting.during(device.synchronize());
  }

  /** As many elements as all slices, zeros beyond the parameters. */
  private row(): Tensor {
    return this.device.keep(this.device.zeros([this.cluster.size * this.slice]));
  }
}

/**
 * The additions of the tree over what all processes have left, in their order: `rows` runs of each process, that of number i of rank
 * r in row i · size + r, where i counts up to the most that one has.
 */
export function additions(
  shards: number,
  size: number,
): {
  readonly pairs: readonly (readonly [into: number, other: number])[];
  readonly root: number;
  readonly rows: number;
} {
  const runs = Array.from({ length: size }, (_, rank) => runsOf(shards, rank, size));
  const pairs: (readonly [number, number])[] = [];
  const root = addTree(
    runs.flatMap((own, rank) => own.map((run, i) => ({ ...run, values: i * size + rank }))),
    (into, other) => {
      pairs.push([into, other]);
      return into;
    },
  );
  return { pairs, root, rows: Math.max(...runs.map(({ length }) => length)) };
}
