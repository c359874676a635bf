/** Chooses the devices of a job's processes, and checks what must be equal on them. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, hostname } from 'node:os';
import type { Cluster } from '../../cluster/cluster.js';
import { isAloneUnderMpi, type Place } from '../../cluster/environment.js';
import { exchange } from '../../cluster/exchange.js';
import type { FrameConfig } from '../../config/schema.js';
import { StepTrainError } from '../../native/errors.js';
import { plural } from '../../native/shown.js';
import { chosenDevice } from '../../runtime/chosen-device.js';
import { type Device, openDevice } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { toLog } from '../../terminal/log.js';
import { PIECE } from '../sums/slices.js';

/** The device of this process: its share of the machine's cores, or the GPU of its number. */
export async function openShare(
  { run }: Pick<FrameConfig, 'run'>,
  cluster: Cluster | undefined,
): Promise<Device> {
  const name = chosenDevice(run.device);
  const memoryFraction = run.memory_fraction;
  if (!cluster) {
    if (run.threads === 0 && name === 'cpu' && isAloneUnderMpi(process.env)) sayBound(usableCores());
    return openDevice(name, { memoryFraction, ...(run.threads > 0 ? { threads: run.threads } : {}) });
  }
  const { localRank } = cluster.place;
  const threads = run.threads > 0 ? run.threads : await ownCores(cluster);
  const own = run.device === 'cpu' || name === 'cpu' ? 'cpu' : `cuda:${localRank}`;
  return openDevice(own, { memoryFraction, threads });
}

/** The cores that a process may use. */
export interface UsableCores {
  /** The set of cores as text: equal for two processes that share all of theirs. */
  readonly which: string;
  readonly count: number;
  readonly ofMachine: number;
}

/**
 * The number of cores for this process: all of those to which its launcher has bound it alone, as mpirun and SLURM do,
 * and its part of those that other processes share. All processes call it.
 */
export async function ownCores(
  cluster: Pick<Cluster, 'gather' | 'rank'> & { readonly place: Pick<Place, 'localSize' | 'cores' | 'mpi'> },
  usable = usableCores(),
  say: (text: string) => void = toLog,
): Promise<number> {
  const { localSize, cores, mpi } = cluster.place;
  const all = await exchange(cluster, usable.which);
  const sharing = Math.min(localSize, all.filter((which) => which === usable.which).length);
  const own = Math.max(1, Math.floor(Math.min(usable.count / sharing, (cores ?? Infinity) / localSize)));
  // Open MPI binds each of up to two processes to a single core.
  if (mpi && cores === undefined && cluster.rank === 0 && sharing < localSize)
    sayBound({ count: own, ofMachine: usable.ofMachine }, localSize, say);
  return own;
}

/** Says so where mpirun gives half of the machine's cores or fewer to all processes together. */
export function sayBound(
  { count, ofMachine }: Pick<UsableCores, 'count' | 'ofMachine'>,
  processes = 1,
  say: (text: string) => void = toLog,
): void {
  if (2 * count * processes <= ofMachine)
    say(
      `each process computes on ${plural(count, 'core')}, to which mpirun has bound it; mpirun --bind-to none divides all that there are`,
    );
}

function usableCores(): UsableCores {
  const [, which = ''] = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
  return {
    which: `${hostname()} ${which}`,
    count: availableParallelism(),
    ofMachine: cpus().length,
  };
}

/** @throws StepTrainError where a process would round in another way */
export async function sameKernels(device: Device, cluster: Cluster | undefined): Promise<void> {
  if (!cluster) return;
  const all = (await cluster.gather(Buffer.from(device.info().isa))).map((bytes) =>
    Buffer.from(bytes).toString(),
  );
  const other = all.findIndex((isa) => isa !== all[0]);
  if (other < 0) return;
  throw new StepTrainError(
    'E_CLUSTER',
    `rank ${other} has the ${all[other]} kernels and rank 0 the ${all[0]} ones, which round in another way; ` +
      'set STEPTRAIN_ISA to one that all processors have, for all processes',
  );
}

/**
 * All call it before rank 0 writes a checkpoint for all.
 *
 * @param roles by name their parameters, which every process has whole
 * @throws StepTrainError where they have come apart
 */
export async function sameParameters(
  roles: Readonly<Record<string, { readonly values: Tensor }>>,
  cluster: Pick<Cluster, 'gather'>,
): Promise<void> {
  const own: Record<string, string> = {};
  for (const [role, { values }] of Object.entries(roles)) {
    const hash = createHash('sha256');
    for (const piece of inPieces(values)) hash.update(await piece.readFloats());
    own[role] = hash.digest('hex');
  }
  const [first, ...others] = await exchange(cluster, own);
  for (const [role, hash] of Object.entries(first as typeof own)) {
    const rank = 1 + others.findIndex((other) => other[role] !== hash);
    if (rank > 0)
      throw new StepTrainError(
        'E_CLUSTER',
        `the parameters of ${role} on rank ${rank} are no longer those of rank 0: a processor, its memory or a link has failed, or ` +
          'the kernels differ; no checkpoint is written, and the one before it is good',
      );
  }
}

/** Parameters may be more than one array can hold. */
function* inPieces(values: Tensor): Generator<Tensor> {
  for (let at = 0; at < values.size; at += PIECE) {
    const piece = values.view(at, [Math.min(PIECE, values.size - at)]);
    yield piece;
    piece.dispose();
  }
}

/** Number of processes of the job that share the memory of a device, this one included. */
export function sharers(device: Device, cluster: Cluster | undefined): number {
  return cluster && device.info().name === 'cpu' ? cluster.place.localSize : 1;
}

/** The smallest number of all processes for each name, which thus fits everywhere. */
export async function leastOfAll(
  cluster: Cluster | undefined,
  own: Readonly<Record<string, number>>,
): Promise<Readonly<Record<string, number>>> {
  if (!cluster) return own;
  const all = await cluster.gather(Buffer.from(JSON.stringify(own)));
  const found = all.map((bytes) => JSON.parse(Buffer.from(bytes).toString()) as Record<string, number>);
  return Object.fromEntries(
    Object.keys(own).map((name) => [name, Math.min(...found.map((each) => each[name] as number))]),
  );
}
