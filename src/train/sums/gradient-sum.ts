/**
 * The gradient of an optimizer batch out of those of its shards, in the fixed order of their tree, on this process and all others:
 * through host memory and the sockets of the job, or on the device, where a carrier moves the bytes. The bits are the same.
 */
import type { TrainedParameters } from '../../autograd/parameters.js';
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster } from '../../cluster/cluster.js';
import {
  addFloats,
  additions,
  addTree,
  joinNeighbours,
  type ShardSum,
  type SumOf,
  shardsOf,
} from '../../cluster/shards.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { type Bucket, bucketsOf, type GradientSum } from './buckets.js';
import { OverlappedSum } from './overlapped-sum.js';
import { ReleasedSum } from './released-sum.js';
import { ALIGNED, aligned, sliceLength, slicesIn } from './slices.js';
import { Turns } from './turns.js';

export interface SumOptions {
  /** Turns of all buffers whose gradients are summed together. Default: of this one. */
  readonly turns?: Turns;
  /** Whether gradients travel during the backward pass: not where the carrier gathers layers of the base meanwhile. Default: yes. */
  readonly overlaps?: boolean;
  /** Elements that another carrier moves at a time. */
  readonly inFlight?: number;
}

/**
 * @param isSliced whether each process needs the slice alone that its optimizer updates
 */
export function gradientSum(
  parameters: TrainedParameters,
  shards: number,
  cluster: Cluster | undefined,
  carrier: Carrier | undefined,
  isSliced = false,
  { turns = new Turns(), overlaps = true, inFlight = IN_FLIGHT }: SumOptions = {},
): GradientSum {
  if (!cluster) return new OwnSum(parameters);
  if (parameters.released)
    return new ReleasedSum(parameters, parameters.released, cluster, { carrier, overlaps, turns });
  if (!carrier) return new HostSum(parameters, shards, cluster, isSliced);
  return overlaps
    ? new OverlappedSum(parameters, shards, cluster, carrier, isSliced, turns)
    : new CarriedSum(parameters, shards, cluster, carrier, isSliced, inFlight);
}

/** The sum in a single process, which computes all shards. */
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

interface Summed extends Bucket {
  readonly give: (shards: Promise<readonly ShardSum[]>) => void;
  readonly sum: Promise<Float32Array>;
  /** Its position in the buffer. */
  readonly first: number;
}

/**
 * Sums through the sockets of the job, a bucket after the other, as the last backward of this process completes them.
 */
class HostSum implements GradientSum {
  /** Sums of the shards before the last one. */
  private earlier: ShardSum[] = [];
  private readonly last: number;
  private readonly buckets: readonly Summed[];
  private given = 0;

  constructor(
    private readonly parameters: TrainedParameters,
    shards: number,
    private readonly cluster: Cluster,
    isSliced: boolean,
  ) {
    this.last = shardsOf(shards, cluster.rank, cluster.size).end - 1;
    // All are asked for before any other exchange: processes call them in the same order, whenever they have their parts.
    this.buckets = bucketsOf(parameters).map((bucket) => {
      let give: Summed['give'] = () => {};
      const own = new Promise<readonly ShardSum[]>((resolve) => {
        give = resolve;
      });
      const parts = isSliced ? slicesIn(bucket, parameters.size, cluster.size) : undefined;
      const sum = cluster.sum(own, bucket.end - bucket.begin, parts);
      sum.catch(() => {}); // finish() hears of it
      return { ...bucket, give, sum, first: bucket.begin + (parts?.[cluster.rank]?.begin ?? 0) };
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
    const { buckets, parameters, cluster } = this;
    // A process without a shard gives nothing.
    for (; this.given < buckets.length; this.given++) buckets[this.given]?.give(Promise.resolve([]));
    const sums = await cluster.waiting.during(Promise.all(buckets.map(({ sum }) => sum)));
    for (const [i, sum] of sums.entries()) {
      if (sum.length === 0) continue;
      const window = parameters.grads.view((buckets[i] as Summed).first, [sum.length]);
      window.write(sum);
      window.dispose();
    }
  }

  private giveDownTo(layer: number): void {
    for (; (this.buckets[this.given]?.layer ?? -2) >= layer; this.given++) {
      const bucket = this.buckets[this.given] as Summed;
      bucket.give(this.shardsOfBucket(bucket));
    }
  }

  private async shardsOfBucket({ begin, end }: Bucket): Promise<readonly ShardSum[]> {
    const window = this.parameters.grads.view(begin, [end - begin]);
    const read = window.readFloats();
    window.dispose();
    const values = await read;
    // Copies, since a sum takes over its arguments.
    const earlier = this.earlier.map((sum) => ({ ...sum, values: sum.values.slice(begin, end) }));
    return joinNeighbours([...earlier, { first: this.last, count: 1, values }], addFloats);
  }
}

/**
 * Max elements that the processes exchange at a time: a process holds at most twice as many in addition to its
 * gradients.
 */
const IN_FLIGHT = 1 << 24;

/**
 * A reduce-scatter and, unless the optimizer updates that slice alone, an all-gather, piece by piece: every process gets the slice of
 * its number from all, adds it, and all get all slices. The bytes of a ring, and an order that no carrier decides.
 */
class CarriedSum implements GradientSum {
  /** The gradient of the last shard is in the parameters' own buffer. */
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
    private readonly inFlight: number,
  ) {
    this.device = parameters.device;
    this.slice = isSliced
      ? sliceLength(parameters.size, cluster.size)
      : aligned(parameters.size / cluster.size);
  }

  passed(): void {}

  async add(shard: number): Promise<void> {
    const { device, parameters, shards, cluster } = this;
    const { grads } = parameters;
    const isLast = shard === shardsOf(shards, cluster.rank, cluster.size).end - 1;
    const values = isLast ? grads : device.keep(device.ops.copy({ x: grads }).y);
    this.sums = joinNeighbours([...this.sums, { first: shard, count: 1, values }], (left, right) => {
      device.ops.add({ x: left, y: right, z: left });
      if (right !== grads) right.dispose();
      return left;
    });
  }

  async finish(): Promise<void> {
    const { device, shards, cluster, slice, inFlight } = this;
    const { pairs, root, rows } = additions(shards, cluster.size);
    const order = device.keep(device.tensor(Int32Array.from(pairs.flat()), [pairs.length, 2]));
    const most = Math.max(ALIGNED, aligned(inFlight / cluster.size / rows));
    for (let at = 0; at < slice; at += most) {
      const length = Math.min(most, slice - at);
      device.scope(() => this.sumPiece(at, length, { order, root, rows }), 'gradients of all processes');
    }
    order.dispose();
    for (const { values } of this.sums) if (values !== this.parameters.grads) values.dispose();
    this.sums = [];
    await cluster.waiting.during(device.synchronize());
  }

  /** `length` elements from `at` on of every slice: positions that no other piece reads or writes. */
  private sumPiece(
    at: number,
    length: number,
    { order, root, rows }: { readonly order: Tensor; readonly root: number; readonly rows: number },
  ): void {
    const { device, parameters, cluster, carrier, sums } = this;
    const { rank, size } = cluster;
    const { communicator } = carrier;
    const arrived = device.empty([rows * size, length]);
    const given = device.empty([size, length]);
    for (let row = 0; row < rows; row++) {
      const own = sums[row]?.values;
      if (own) this.eachSlice(at, length, (of, piece) => device.ops.copy({ x: of(own), y: piece(given) }));
      const y = arrived.view(row * size * length, [size, length]);
      device.ops.all_to_all({ x: given, y, communicator });
    }
    const { y: sum } = device.ops.sum_slices({ x: arrived, pairs: order, root });
    if (!this.isSliced) device.ops.all_gather({ x: sum, y: given, communicator });
    this.eachSlice(at, length, (of, piece, other) => {
      if (!this.isSliced) device.ops.copy({ x: piece(given), y: of(parameters.grads) });
      else if (other === rank)
        device.ops.copy({ x: sum.view(0, of(parameters.grads).shape), y: of(parameters.grads) });
    });
  }

  /** Calls for each process with what finds the piece in a flat buffer, and in rows by process; the last slices may end earlier. */
  private eachSlice(
    at: number,
    length: number,
    work: (of: (flat: Tensor) => Tensor, piece: (rows: Tensor) => Tensor, rank: number) => void,
  ): void {
    const { parameters, cluster, slice } = this;
    for (let rank = 0; rank < cluster.size; rank++) {
      const begin = rank * slice + at;
      const count = Math.min(length, parameters.size - begin);
      if (count <= 0) return;
      work(
        (flat) => flat.view(begin, [count]),
        (rows) => rows.view(rank * length, [count]),
        rank,
      );
    }
  }
}
