/**
 * Sums the gradient of a batch while the backward pass goes on. A carrier moves the buckets: in host memory by a thread
 * that sums them too; on a GPU by ops, whose bytes travel while the queue goes on.
 */
import type { TrainedParameters } from '../../autograd/parameters.js';
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster } from '../../cluster/cluster.js';
import { type Additions, additions, joinNeighbours, type SumOf, shardsOf } from '../../cluster/shards.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { type Bucket, bucketsOf, type GradientSum, MOST } from './buckets.js';
import { PiecePipeline } from './piece-pipeline.js';
import { aligned, slicesIn } from './slices.js';
import type { Turns } from './turns.js';

/**
 * Elements received at a time: they stay in the caches, and are all the memory that the exchange takes in addition to
 * the gradients.
 */
export const SCRATCH = 1 << 20;

/** Layer that stands after all buckets. */
const END = -2;

export class OverlappedSum implements GradientSum {
  /** Sums of the shards before the last one. */
  private earlier: SumOf<Tensor>[] = [];
  private readonly last: number;
  private readonly hasShard: boolean;
  private readonly buckets: readonly (Bucket & { readonly give: ReturnType<Turns['take']> })[];
  private readonly order: Additions;
  /** Buffer of the thread. */
  private readonly scratch: Tensor | undefined;
  private readonly pipeline: PiecePipeline | undefined;
  private readonly flush: ReturnType<Turns['take']> | undefined;
  private given = 0;
  private readonly sums: Promise<void>[] = [];

  constructor(
    private readonly parameters: TrainedParameters,
    shards: number,
    private readonly cluster: Pick<Cluster, 'rank' | 'size' | 'waiting'>,
    private readonly carrier: Carrier,
    private readonly isSliced: boolean,
    turns: Turns,
  ) {
    const { device, size } = parameters;
    const { begin, end } = shardsOf(shards, cluster.rank, cluster.size);
    this.last = end - 1;
    this.hasShard = end > begin;
    this.order = additions(shards, cluster.size);
    const { rows } = this.order;
    const { communicator, name } = carrier;
    if (name === 'nccl') this.pipeline = new PiecePipeline(device, communicator, cluster.size, this.order);
    else this.scratch = scratchOf(device, size, rows * (cluster.size - 1));
    // The rows of a piece travel together.
    const most = this.pipeline ? aligned(MOST / rows) : MOST;
    this.buckets = bucketsOf(parameters, most).map((bucket) => ({
      ...bucket,
      give: turns.take(bucket.layer),
    }));
    if (this.pipeline) this.flush = turns.take(END);
    // Whatever else takes turns, nothing of the others waits for what this process has not.
    if (!this.hasShard) this.giveDownTo(-1);
  }

  passed(shard: number, layer: number): void {
    if (shard === this.last) this.giveDownTo(layer);
  }

  async add(shard: number): Promise<void> {
    if (shard === this.last) return this.giveDownTo(-1);
    const { device, grads } = this.parameters;
    const values = device.keep(device.ops.copy({ x: grads }).y);
    this.earlier = joinNeighbours([...this.earlier, { first: shard, count: 1, values }], (left, right) => {
      device.ops.add({ x: left, y: right, z: left });
      right.dispose();
      return left;
    });
  }

  async finish(): Promise<void> {
    const { cluster, parameters, pipeline, flush } = this;
    // Time in which a GPU still computes does not count as waiting for others.
    const computed = pipeline && parameters.device.synchronize();
    const ended = flush?.(async () => pipeline?.flush());
    await computed;
    await cluster.waiting.during(Promise.all([...this.sums, ended]));
    if (pipeline) await cluster.waiting.during(parameters.device.synchronize());
    for (const { values } of this.earlier) values.dispose();
    for (const owned of [this.scratch, pipeline]) owned?.dispose();
  }

  private giveDownTo(layer: number): void {
    for (; (this.buckets[this.given]?.layer ?? -2) >= layer; this.given++)
      this.give(this.buckets[this.given] as (typeof this.buckets)[number]);
  }

  private give(bucket: (typeof this.buckets)[number]): void {
    const { parameters, pipeline } = this;
    const { device } = parameters;
    const length = bucket.end - bucket.begin;
    const window = (of: Tensor) => device.keep(of.view(bucket.begin, [length]));
    const result = window(parameters.grads);
    const windows = [result, ...this.earlier.map(({ values }) => window(values))];
    // The queue runs this after the ops that compute the bucket's gradients.
    const rows = joinNeighbours(
      [
        ...this.earlier.map((sum, i) => ({ ...sum, values: windows[i + 1] as Tensor })),
        ...(this.hasShard ? [{ first: this.last, count: 1, values: result }] : []),
      ],
      (left, right) => {
        device.ops.add({ x: left, y: right, z: left });
        return left;
      },
    );
    const own = rows.map(({ values }) => values);
    const dispose = () => {
      for (const tensor of windows) tensor.dispose();
    };
    if (pipeline) {
      const take = (sum: Tensor) => {
        device.ops.copy({ x: sum, y: result });
        dispose();
      };
      this.sums.push(bucket.give(async () => pipeline.give(own, length, take)));
      return;
    }
    // A process without a shard waits too: its queue may still use the gradients of before, or the memory that is scratch now.
    const computed = device.synchronize();
    computed.catch(() => {}); // the turn hears of it
    const sum = bucket.give(async () => {
      await computed;
      await this.sumByThread(bucket, own, result);
      dispose();
    });
    this.sums.push(sum);
  }

  private sumByThread(bucket: Bucket, rows: readonly Tensor[], result: Tensor): Promise<void> {
    const { parameters, cluster, carrier, order, isSliced } = this;
    const length = bucket.end - bucket.begin;
    return parameters.device.sumAcross(carrier.communicator, {
      ...{ rows, result, scratch: this.scratch as Tensor },
      ...{ counts: order.counts, pairs: order.pairs, root: order.root },
      begins: evenBegins(length, cluster.size),
      wanted: isSliced
        ? slicesIn(bucket, parameters.size, cluster.size)
        : Array.from({ length: cluster.size }, () => ({ begin: 0, end: length })),
    });
  }
}

/** Starts of equal parts, except for the last ones; then the end. */
export function evenBegins(length: number, processes: number): number[] {
  const each = aligned(length / processes);
  return Array.from({ length: processes + 1 }, (_, rank) => Math.min(length, rank * each));
}

/**
 * Buffer for the arriving parts of a buffer of `length` elements, of which a process adds up `rows` of each of the
 * others.
 */
export const scratchOf = (device: Device, length: number, rows: number) =>
  device.keep(device.empty([Math.max(rows, Math.min(SCRATCH, rows * length))]));
