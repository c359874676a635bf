/** What the processes of a job settle about their devices. */
import { availableParallelism } from 'node:os';
import type { Cluster } from '../cluster/cluster.js';
import type { FrameConfig } from '../config/schema.js';
import { StepTrainError } from '../native/errors.js';
import { chosenDevice } from '../runtime/chosen-device.js';
import { type Device, openDevice } from '../runtime/device.js';

/** The device of this process: its share of the machine's cores, or the GPU of its number. */
export function openShare({ run }: Pick<FrameConfig, 'run'>, cluster: Cluster | undefined): Device {
  const name = chosenDevice(run.device);
  if (!cluster) return openDevice(name, run.threads > 0 ? { threads: run.threads } : {});
  const { localRank, localSize } = cluster.place;
  const cores = Math.max(1, Math.floor(availableParallelism() / localSize));
  const own = run.device === 'cpu' || name === 'cpu' ? 'cpu' : `cuda:${localRank}`;
  return openDevice(own, { threads: run.threads > 0 ? run.threads : cores });
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

/** For each name the smallest number that a process has: what fits everywhere. */
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
