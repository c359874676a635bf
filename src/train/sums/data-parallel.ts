/**
 * An optimizer batch in shards over the processes of a job. The gradient is the sum over shards in one fixed order, so that
 * parameters have the same bits for any number of processes.
 */
import type { TrainedParameters } from '../../autograd/parameters.js';
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster } from '../../cluster/cluster.js';
import { exchange } from '../../cluster/exchange.js';
import { itemsOf, shardsOf } from '../../cluster/shards.js';
import type { LayerHolders } from '../../models/sharded-layers.js';
import type { Device } from '../../runtime/device.js';
import { completedAt } from './buckets.js';
import { gradientSum } from './gradient-sum.js';
import { Turns } from './turns.js';

/** Options for dividing the batches of a run. */
export interface DataParallel {
  /** `run.shards` */
  readonly shards: number;
  /** Absent: one process computes all shards. */
  readonly cluster?: Cluster | undefined;
  /** Absent: the sockets of the job. */
  readonly carrier?: Carrier | undefined;
  /** `run.overlap`. Default: true. */
  readonly overlap?: boolean;
  /** `run.zero` */
  readonly zero?: 0 | 1 | 2 | undefined;
  /** `run.shard_base`: the processes that hold the layers of the base together. */
  readonly holders?: LayerHolders | undefined;
}

const parallels = new WeakMap<Device, DataParallel>();

/** Whole buffers of which each process updates only a slice, so that it needs no more of the sum. */
export const slicedBuffers = new WeakSet<TrainedParameters>();

/** Divides all later optimizer batches on `device`. */
export function divideBatches(device: Device, parallel: DataParallel): void {
  if (parallel.shards > 1 || parallel.cluster) parallels.set(device, parallel);
}

export function dataParallel(device: Device): DataParallel | undefined {
  return parallels.get(device);
}

/** Called when a backward pass is through a layer; the pass goes on once the promise resolves. */
export type Passed = (layer: number) => Promise<void>;

/** The result for a micro-batch: a `ReadTerm`, whose group holds items. */
interface OfGroup<Item> {
  readonly group: readonly Item[];
}

/**
 * Computes the shards of this process one after the other and leaves the gradient of the whole batch in the parameters.
 *
 * @param compute adds the gradients of a shard's items to zeroed buffers; where there are none and gradients are
 * released, it may add anything. It calls `passed` when its last backward is through a layer
 * @param fill is called before; it may leave anything in the buffers
 * @returns the results of all shards of all processes, in order; those of other processes hold only what a structured
 * clone can
 */
export async function overShards<Item, Found extends OfGroup<Item>>(
  items: readonly Item[],
  trains: readonly TrainedParameters[],
  { shards, cluster, carrier, holders, overlap = true }: DataParallel,
  compute: (items: readonly Item[], passed: Passed) => Promise<readonly Found[]>,
  fill: () => Promise<void> = async () => {},
): Promise<Found[]> {
  const { begin, end } = shardsOf(shards, cluster?.rank ?? 0, cluster?.size ?? 1);
  const turns = new Turns();
  const sums = trains.map((parameters) =>
    gradientSum(parameters, shards, cluster, carrier, slicedBuffers.has(parameters), {
      turns,
      overlaps: overlap && !holders,
    }),
  );
  await fill();
  const layers = completedAt(trains);
  const found: Found[] = [];
  for (let shard = begin; shard < end; shard++) {
    for (const parameters of trains) parameters.zeroGrads();
    const own = itemsOf(items, shard, shards);
    const left = [...layers];
    // Layer by layer, and all buffers at each: that order is the same in a process that has nothing to compute.
    const passed = async (layer: number) => {
      for (let next = left[0]; next !== undefined && next >= layer; next = left[0]) {
        left.shift();
        await Promise.all(sums.map((sum) => sum.passed(shard, next as number, own.length === 0)));
      }
    };
    found.push(...(await compute(own, passed)));
    await passed(-1);
    for (const sum of sums) await sum.add(shard);
  }
  for (const sum of sums) await sum.finish();
  if (!cluster) return found;
  const places = new Map(items.map((item, i) => [item, i]));
  const numbered = found.map((term) => ({
    term,
    at: term.group.map((item) => places.get(item) as number),
  }));
  // The own ones again too, so that all processes have the same.
  const all = await exchange(
    cluster,
    numbered.map(({ term, at }) => ({ at, term: { ...term, group: [] } })),
  );
  return all.flat().map(({ at, term }) => ({ ...term, group: at.map((i) => items[i] as Item) }));
}

/**
 * Number of micro-batches that each process computes of an optimizer batch, by rank. @param count of those of a shard's
 * items
 */
export function turnsOf<Item>(
  items: readonly Item[],
  { shards, cluster }: DataParallel,
  count: (items: readonly Item[]) => number,
): number[] {
  const size = cluster?.size ?? 1;
  return Array.from({ length: size }, (_, rank) => {
    const { begin, end } = shardsOf(shards, rank, size);
    let turns = 0;
    for (let shard = begin; shard < end; shard++) turns += count(itemsOf(items, shard, shards));
    return turns;
  });
}
