/**
 * Carriers of the bytes of collectives between the processes of a job: its sockets (`cluster.ts`), or a carrier that
 * ops call.
 */

import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { addon, type OpenedCarrier } from '../native/addon.js';
import { StepTrainError } from '../native/errors.js';
import { typedCommand } from '../native/typed-command.js';
import { toLog } from '../terminal/log.js';
import type { Cluster } from './cluster.js';
import { exchange, foundOnce } from './exchange.js';

type CarrierName = 'tcp' | 'shm' | 'mpi' | 'nccl';

export interface Carrier {
  readonly name: Exclude<CarrierName, 'tcp'>;
  /** Argument of the ops. */
  readonly communicator: number;
  /** Makes pending and later ops fail, after a process was lost. */
  cancel(): void;
  /** All processes call it. */
  close(): Promise<void>;
}

/** The path at which `steptrain build --mpi` puts the plugin. */
export const MPI_PLUGIN = fileURLToPath(new URL('../../build/Release/steptrain_mpi.so', import.meta.url));

/** Files that lie in memory. */
const SHARED = '/dev/shm';

export interface CarrierOptions {
  readonly wanted: 'auto' | CarrierName;
  /** Device of this process: `cpu`, or `cuda:N`. */
  readonly device: string;
  readonly plugin?: string;
  /** Hears on rank 0 why `auto` has passed something over that fits the machine. Default: standard error. */
  readonly say?: (sentence: string) => void;
}

/**
 * The carrier of a job; undefined for the job's own sockets. `auto` takes one that all processes have, where they
 * compute on processors: MPI where it started them and the plugin is built, else shared memory where they are on one
 * machine.
 *
 * @throws StepTrainError E_CLUSTER where a process lacks the wanted one
 */
export async function openCarrier(
  cluster: Cluster,
  { wanted, device, plugin = MPI_PLUGIN, say = toLog }: CarrierOptions,
): Promise<Carrier | undefined> {
  const obstacles = {
    shm: shmObstacle(cluster.place, device),
    mpi: mpiObstacle(cluster.place.mpi, device, plugin),
    nccl: ncclObstacle(device),
  };
  const all = await exchange(cluster, obstacles);
  if (wanted === 'auto') {
    const fits = (name: keyof typeof obstacles) => all.every((each) => each[name] === undefined);
    if (fits('mpi')) return opened('mpi', cluster, await addon().openPlugin(plugin));
    if (!fits('shm')) return undefined;
    const { carrier, obstacle } = await openShared(cluster);
    if (!carrier && cluster.rank === 0) say(`run.collectives: TCP carries the gradients, since ${obstacle}`);
    return carrier;
  }
  if (wanted === 'tcp') return undefined;
  const rank = all.findIndex((each) => each[wanted] !== undefined);
  if (rank >= 0)
    throw new StepTrainError(
      'E_CLUSTER',
      `run.collectives is ${wanted}, and of rank ${rank} ${all[rank]?.[wanted]}`,
    );
  if (wanted === 'shm') {
    const { carrier, obstacle } = await openShared(cluster);
    if (!carrier) throw new StepTrainError('E_CLUSTER', `run.collectives is shm, and ${obstacle}`);
    return carrier;
  }
  if (wanted === 'mpi') return opened('mpi', cluster, await addon().openPlugin(plugin));
  const id = await foundOnce(cluster, async () => new Uint8Array(await addon().ncclId('')));
  const bytes = new Uint8Array(id).buffer;
  const gpu = Number(device.slice(device.indexOf(':') + 1));
  return opened('nccl', cluster, await addon().openNccl('', bytes, cluster.rank, cluster.size, gpu));
}

/** All processes open it, or none. */
async function openShared(
  cluster: Cluster,
): Promise<{ readonly carrier?: Carrier; readonly obstacle?: string }> {
  const { rank, size } = cluster;
  const path = await foundOnce(cluster, async () => `${SHARED}/steptrain-${randomBytes(12).toString('hex')}`);
  let own: OpenedCarrier | undefined;
  const all = await allOpen().finally(() => (rank === 0 ? rm(path, { force: true }) : undefined));
  const failed = all.findIndex((obstacle) => obstacle !== undefined);
  if (failed < 0) return { carrier: opened('shm', cluster, own as OpenedCarrier) };
  if (own) await addon().closeCarrier(own.communicator);
  return { obstacle: `of rank ${failed} ${all[failed]}` };

  /** Each process's obstacle to opening it. Rank 0 creates it, and the others open it. */
  async function allOpen(): Promise<(string | undefined)[]> {
    const [made] = await exchange(cluster, rank === 0 ? await open() : undefined);
    return exchange(cluster, rank === 0 || made !== undefined ? made : await open());
  }

  async function open(): Promise<string | undefined> {
    try {
      own = await addon().openShared(path, rank, size);
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  }
}

function shmObstacle(
  { localSize, size }: Pick<Cluster['place'], 'localSize' | 'size'>,
  device: string,
): string | undefined {
  if (device !== 'cpu') return `the device is ${device}; shared memory is the host's`;
  if (localSize !== size) return `only ${localSize} of ${size} processes are on its machine`;
  return existsSync(SHARED) ? undefined : `there is no ${SHARED}`;
}

function mpiObstacle(mpi: boolean, device: string, plugin: string): string | undefined {
  if (!mpi) return 'the processes were not started by mpirun, or by srun --mpi=pmix';
  if (device !== 'cpu') return `the device is ${device}; MPI carries host memory alone`;
  return existsSync(plugin)
    ? undefined
    : `the plugin is missing; compile it there: ${typedCommand('build --mpi')}`;
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
