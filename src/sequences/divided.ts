/**
 * A forward over groups of sequences, divided among the processes of a job: each computes its own, and all get all
 * results.
 */
import { exchange } from '../cluster/exchange.js';
import type { Device } from '../runtime/device.js';
import { processesOf } from '../runtime/processes.js';

export interface OverGroups<Item, Found> {
  /** Looked at before each group; in a job, at points where all look. */
  readonly signal?: AbortSignal | undefined;
  /** Called for every group, in order. */
  readonly onGroup?: (found: Found, group: readonly Item[]) => void;
}

/** Groups of each process between two exchanges. */
const AT_ONCE = 4;

/**
 * @param groups the same in all processes
 * @param compute depends on its group alone; its result is sent as a structured clone
 * @returns results by group; undefined if the signal stopped it
 */
export async function overGroups<Item, Found>(
  device: Device,
  groups: readonly (readonly Item[])[],
  compute: (group: readonly Item[]) => Promise<Found>,
  { signal, onGroup }: OverGroups<Item, Found> = {},
): Promise<Found[] | undefined> {
  const all: Found[] = [];
  const take = (found: Found) => {
    onGroup?.(found, groups[all.length] as readonly Item[]);
    all.push(found);
  };
  const processes = processesOf(device);
  if (!processes) {
    for (const group of groups) {
      if (signal?.aborted) return undefined;
      take(await compute(group));
    }
    return all;
  }
  const { cluster, settle, lockstep } = processes;
  const { rank, size } = cluster;
  for (let first = 0; first < groups.length; first += AT_ONCE * size) {
    if (signal) await settle();
    if (signal?.aborted) return undefined;
    const round = groups.slice(first, first + AT_ONCE * size);
    const own: Found[] = [];
    for (let i = rank; i < round.length; i += size) own.push(await compute(round[i] as readonly Item[]));
    // In the last turn, processes without a group compute another's, and drop it.
    const turns = lockstep ? Math.ceil(round.length / size) : 0;
    for (let turn = own.length; turn < turns; turn++) await compute(round[0] as readonly Item[]);
    const found = await exchange(cluster, own);
    round.forEach((_, i) => void take(found[i % size]?.[Math.floor(i / size)] as Found));
  }
  return all;
}
