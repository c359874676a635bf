// What `run.shard_base` and `run.zero` 2 need of a job, and the sentences of those that have it not.
import { expect, it, vi } from 'vitest';
import type { Carrier } from '../../../src/cluster/carriers.js';
import type { Cluster } from '../../../src/cluster/cluster.js';
import type { FrameConfig } from '../../../src/config/schema.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { Decoder } from '../../../src/models/decoder.js';
import { loadDecoder } from '../../../src/models/load.js';
import { holdersOf, refuseWhole, releasesGradients } from '../../../src/train/processes/shared-base.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const config = (run: object) =>
  completeRunConfig({ method: 'sft', data: { source: 'arithmetic' }, run } as never) as FrameConfig;
const shared = config({ shard_base: true, gradient_checkpointing: true });
const of = (rank: number, localSize = 4) =>
  ({ rank, size: 4, place: { localSize } }) as Partial<Cluster> as Cluster;
const carrier = { name: 'shm', communicator: 7 } as Carrier;

it('a base is divided among the processes of one machine that more than sockets connect', () => {
  expect(holdersOf(shared, of(2), carrier)).toEqual({ communicator: 7, rank: 2, size: 4, ahead: true });
  expect(holdersOf(config({}), of(2), carrier)).toBe(undefined);
  expect(holdersOf(shared, undefined, undefined)).toBe(undefined);
  expect(() => holdersOf(shared, of(2, 2), carrier)).toThrow(
    /^run\.shard_base needs all processes on one machine, and 2 of 4 are on this one; set it to false$/,
  );
  expect(() => holdersOf(shared, of(2), undefined)).toThrow(
    /^run\.shard_base needs run\.collectives: shm, mpi or nccl, .*; set it to false$/,
  );
  const holders = { communicator: 7, rank: 2, size: 4 };
  const whole = { options: {} } as Decoder;
  expect(() => refuseWhole(holders, whole)).toThrow(/^run\.shard_base needs a run with LoRA, by a method/);
  expect(() => refuseWhole(undefined, whole)).not.toThrow();
});

it('a quantised base is not divided', async () => {
  const device = openTest();
  const options = { gradientCheckpointing: true, holders: { communicator: 0, rank: 0, size: 2 } };
  await expect(loadDecoder(device, goldenDirectory('quantized/bitsandbytes'), options)).rejects.toThrow(
    /needs weights in f32 or bf16, .* set model\.quantize: none$/,
  );
  expect(device.stats().liveBytes).toBe(0);
  device.dispose();
});

it('gradients are released where each process has one shard, and rank 0 says where they are not', () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  expect(releasesGradients(config({ zero: 2, shards: 4 }), of(0))).toBe(true);
  expect(releasesGradients(config({ zero: 2, shards: 8 }), undefined)).toBe(false);
  expect(releasesGradients(config({ zero: 2, shards: 8 }), of(1))).toBe(false);
  expect(said).not.toHaveBeenCalled();
  expect(releasesGradients(config({ zero: 2, shards: 8 }), of(0))).toBe(false);
  expect(said.mock.calls).toEqual([
    ['run.zero 2 holds gradients whole here, as 1 does, since run.shards is 8, not 4'],
  ]);
  said.mockRestore();
});
