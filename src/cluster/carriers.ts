/** What moves the bytes of collectives between the processes of a job: its sockets (`cluster.ts`), or a carrier that ops call. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { addon, type OpenedCarrier } from '../native/addon.js';
import { StepTrainError } from '../native/errors.js';
import type { Cluster } from './cluster.js';
import { exchange, foundOnce } from './exchange.js';

export type CarrierName = 'tcp' | 'mpi' | 'nccl';

export interface Carrier {
  readonly name: Exclude<CarrierName, 'tcp'>;
  /** What ops take. */
  readonly communicator: number;
  /** What waits in it fails, as does all that follows: after a loss. */
  cancel(): void;
  /** All processes call it. */
  close(): Promise<void>;
}

/** Where `steptrain build --mpi` puts the plugin. */
export const MPI_PLUGIN = fileURLToPath(new URL('../../build/Release/steptrain_mpi.so', import.meta.url));

export interface CarrierOptions {
  readonly wanted: 'auto' | CarrierName;
  /** Of this process: `cpu`, or `cuda:N`. */
  readonly device: string;
  readonly plugin?: string;
}

/**
 * The carrier of a job; undefined where it is the job's own sockets. `auto` takes MPI where it has started the processes, all compute
 * on processors, and the plugin is there.
 *
 * @throws StepTrainError E_CLUSTER where a process lacks what is wanted
 */
export async function openCarrier(
  cluster: Cluster,
  { wanted, device, plugin = MPI_PLUGIN }: CarrierOptions,
): Promise<Carrier | undefined> {
  const obstacles = { mpi: mpiObstacle(cluster.place.mpi, device, plugin), nccl: ncclObstacle(device) };
  const all = await exchange(cluster, obstacles);
  if (wanted === 'auto') {
    const fits = all.every(({ mpi }) => mpi === undefined);
    return fits ? opened('mpi', cluster, await addon().openPlugin(plugin)) : undefined;
  }
  if (wanted === 'tcp') return undefined;
  const rank = all.findIndex((each) => each[wanted] !== undefined);
  if (rank >= 0)
    throw new StepTrainError(
      'E_CLUSTER',
      `run.collectives is ${wanted}, and of rank ${rank} ${all[rank]?.[wanted]}`,
    );
  if (wanted === 'mpi') return opened('mpi', cluster, await addon().openPlugin(plugin));
  const id = await foundOnce(cluster, async () => new Uint8Array(await addon().ncclId('')));
  const bytes = new Uint8Array(id).buffer;
  const gpu = Number(device.slice(device.indexOf(':') + 1));
  return opened('nccl', cluster, await addon().openNccl('', bytes, cluster.rank, cluster.size, gpu));
}

function mpiObstacle(mpi: boolean, device: string, plugin: string): string | undefined {
  if (!mpi) return 'the processes were not started by mpirun, or by srun --mpi=pmix';
  if (device !== 'cpu') return `the device is ${device}; MPI carries host memory alone`;
  return existsSync(plugin) ? undefined : 'the plugin is missing; compile it there: steptrain build --mpi';
}

function ncclObstacle(device: string): string | undefined {
  return device.startsWith('cuda') ? undefined : `the device is ${device}; NCCL carries memory of GPUs alone`;
}

function opened(
  name: Carrier['name'],
  cluster: Cluster,
  { communicator, rank, size }: OpenedCarrier,
): Carrier {
  if (rank !== cluster.rank || size !== cluster.size)
    throw new StepTrainError(
      'E_CLUSTER',
      `${name} counts this process as rank ${rank} of ${size}, and its launcher as ${cluster.rank} of ${cluster.size}`,
    );
  const cancel = () => addon().cancelCarrier(communicator);
  if (cluster.lost.aborted) cancel();
  cluster.lost.addEventListener('abort', cancel, { once: true });
  return {
    name,
    communicator,
    cancel,
    async close() {
      cluster.lost.removeEventListener('abort', cancel);
      await addon().closeCarrier(communicator);
    },
  };
}
