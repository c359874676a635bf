/** Values among the processes of a job, as structured clones: with the bits of their numbers. */
import { deserialize, serialize } from 'node:v8';
import type { Cluster } from './cluster.js';

/** The values of all processes, by rank. */
export async function exchange<Value>(cluster: Pick<Cluster, 'gather'>, own: Value): Promise<Value[]> {
  return (await cluster.gather(serialize(own))).map((bytes) => deserialize(bytes) as Value);
}

/** Rank 0's result, in all processes: for work whose result differs each time, such as asking a server. */
export async function foundOnce<Value>(
  cluster: Pick<Cluster, 'gather' | 'rank'> | undefined,
  find: () => Promise<Value>,
): Promise<Value> {
  if (!cluster) return find();
  const [found] = await exchange(cluster, cluster.rank === 0 ? await find() : undefined);
  return found as Value;
}
