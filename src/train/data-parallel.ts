/**
 * An optimizer batch in shards over the processes of a job. The gradient is the sum over shards in one fixed order, so that
 * parameters have the same bits for any number of processes.
 */
import type { TrainedParameters } from '../autograd/parameters.js';
import type { Cluster } from '../cluster/cluster.js';
import { addTree, itemsOf, joinNeighbours, type ShardSum, shardsOf } from '../cluster/shards.js';
import type { Device } from '../runtime/device.js';

/** How the batches of a run are divided. */
export interface DataParallel {
  /** `run.shards` */
  readonly shards: number;
  /** Absent: one process computes all shards. */
  readonly cluster?: Cluster | undefined;
}

const parallels = new WeakMap<Device, DataParallel>();

/** From here on, optimizer batches on `device` are divided. */
export function divideBatches(device: Device, parallel: DataParallel): void {
  if (parallel.shards > 1 || parallel.cluster) parallels.set(device, parallel);
}

export function dataParallel(device: Device): DataParallel | undefined {
  return parallels.get(device);
}

/**
 * Computes the shards of this process one after the other and leaves the gradient of the whole batch in the parameters.
 *
 * @param compute adds the gradients of a shard's items to zeroed buffers; what it gives for each must be JSON
 * @returns what all shards of all processes gave, in order
 */
export async function overShards<Item, Found>(
  items: readonly Item[],
  trains: readonly TrainedParameters[],
  { shards, cluster }: DataParallel,
  compute: (items: readonly Item[], first: number) => Promise<readonly Found[]>,
): Promise<Found[]> {
  const { begin, end } = shardsOf(shards, cluster?.rank ?? 0, cluster?.size ?? 1);
  const sums: ShardSum[][] = trains.map(() => []);
  const found: Found[] = [];
  let first = 0;
  for (let shard = 0; shard < end; shard++) {
    const own = itemsOf(items, shard, shards);
    if (shard >= begin) {
      for (const parameters of trains) parameters.zeroGrads();
      found.push(...(await compute(own, first)));
      for (const [i, { grads }] of trains.entries()) {
        const values = await grads.readFloats();
        sums[i] = joinNeighbours([...(sums[i] as ShardSum[]), { first: shard, count: 1, values }]);
      }
    }
    first += own.length;
  }
  for (const [i, { grads, size }] of trains.entries()) {
    const parts = sums[i] as ShardSum[];
    grads.write(cluster ? await cluster.sum(parts, size) : addTree(parts));
  }
  if (!cluster) return found;
  const all = await cluster.gather(Buffer.from(JSON.stringify(found)));
  return all.flatMap((bytes) => JSON.parse(Buffer.from(bytes).toString()) as Found[]);
}
