/** `run.shard_base`: who holds the layers of a base together, and which runs cannot. */
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster } from '../../cluster/cluster.js';
import type { FrameConfig } from '../../config/schema.js';
import type { Decoder } from '../../models/decoder.js';
import type { LayerHolders } from '../../models/sharded-layers.js';
import { StepTrainError } from '../../native/errors.js';
import { toLog } from '../../terminal/log.js';

/**
 * The processes of the job; undefined where each has all.
 *
 * @throws StepTrainError E_CONFIG where they are on several machines, or only sockets connect them
 */
export function holdersOf(
  { run }: FrameConfig,
  cluster: Cluster | undefined,
  carrier: Carrier | undefined,
): LayerHolders | undefined {
  if (!run.shard_base || !cluster) return undefined;
  const { rank, size, place } = cluster;
  if (place.localSize !== size)
    refuse(`all processes on one machine, and ${place.localSize} of ${size} are on this one`);
  if (!carrier) refuse('run.collectives: shm, mpi or nccl, which move bytes between two ops');
  return { communicator: carrier.communicator, rank, size, ahead: run.overlap };
}

/** @throws StepTrainError E_CONFIG for a method that samples: every process would have to sample as many tokens */
export function refuseSampling(divides: boolean, samples: boolean): void {
  if (divides && samples) refuse('a method that does not sample');
}

const ONE_ROLE = 'a run with LoRA, by a method that trains one role on its base';

/** @throws StepTrainError E_CONFIG where all weights are trained */
export function refuseTrained(divides: boolean, config: { readonly lora?: unknown }): void {
  if (divides && (config.lora ?? 'none') === 'none') refuse(ONE_ROLE);
}

/** @throws StepTrainError E_CONFIG where the method has loaded its base whole */
export function refuseWhole(holders: LayerHolders | undefined, decoder: Decoder): void {
  if (holders && !decoder.options.layers) refuse(ONE_ROLE);
}

/** Whether `run.zero` 2 frees gradients during the backward pass; prints a line where it cannot. */
export function releasesGradients({ run }: FrameConfig, cluster: Cluster | undefined): boolean {
  if (!cluster) return false;
  const fits = Math.max(1, run.shards) === cluster.size;
  if (!fits && cluster.rank === 0)
    toLog(
      `run.zero 2 holds gradients whole here, as 1 does, since run.shards is ${run.shards}, not ${cluster.size}`,
    );
  return fits;
}

function refuse(needed: string): never {
  throw new StepTrainError('E_CONFIG', `run.shard_base needs ${needed}; set it to false`);
}
