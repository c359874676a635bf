// NCCL's calls, beside a library of the same functions whose ranks are threads and whose memory is the host's.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import type { Carrier } from '../../src/cluster/carriers.js';
import type { Cluster } from '../../src/cluster/cluster.js';
import { addFloats, addTree, shardsOf } from '../../src/cluster/shards.js';
import { Waiting } from '../../src/cluster/waiting.js';
import { addon } from '../../src/native/addon.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { GradientSum } from '../../src/train/sums/buckets.js';
import { gradientSum } from '../../src/train/sums/gradient-sum.js';
import { sliceLength } from '../../src/train/sums/slices.js';
import { compileMockNccl, hasCompiler } from './nccl-library.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-nccl-'));
const library = join(folder, 'libnccl.so.2');
const log = join(folder, 'calls');
const open: Device[] = [];

/** Of each rank: a device with its own queue, and the communicator. */
async function ranks(size: number): Promise<{ device: Device; communicator: number }[]> {
  const id = await addon().ncclId(library);
  return Promise.all(
    Array.from({ length: size }, async (_, rank) => {
      const { communicator } = await addon().openNccl(library, id, rank, size, -1);
      const device = openDevice('cpu', { threads: 1 });
      open.push(device);
      return { device, communicator };
    }),
  );
}

/** What `use` finds on each rank with parameters of its own and the sum of their gradients. */
async function summed<Found>(
  { size, length, shards = size, isSliced = false, inFlight }: SumSettings,
  use: (on: {
    readonly rank: number;
    readonly device: Device;
    readonly parameters: TrainableParameters;
    readonly sum: GradientSum;
  }) => Promise<Found>,
): Promise<Found[]> {
  const all = await ranks(size);
  const found = await Promise.all(
    all.map(async ({ device, communicator }, rank) => {
      const parameters = new TrainableParameters(device, [
        { name: 'w', shape: [length], init: new Float32Array(length) },
      ]);
      const cluster = { rank, size, waiting: new Waiting() } as Cluster;
      const carrier = { communicator } as Carrier;
      const sum = gradientSum(parameters, shards, cluster, carrier, isSliced, {
        overlaps: false,
        ...(inFlight === undefined ? {} : { inFlight }),
      });
      const result = await use({ rank, device, parameters, sum });
      parameters.dispose();
      return result;
    }),
  );
  await Promise.all(all.map(({ communicator }) => addon().closeCarrier(communicator)));
  return found;
}

interface SumSettings {
  readonly size: number;
  readonly length: number;
  readonly shards?: number;
  readonly isSliced?: boolean;
  readonly inFlight?: number;
}

/** Of so many shards, each with the values that `of` gives it: the sum by their tree. */
const sumByTree = (shards: number, of: (shard: number) => Float32Array) =>
  addTree(
    Array.from({ length: shards }, (_, first) => ({ first, count: 1, values: of(first) })),
    addFloats,
  );

const calls = () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []);

describe.skipIf(!hasCompiler)('NCCL (a library that stands for it; needs g++)', () => {
  beforeAll(() => {
    compileMockNccl(folder);
    process.env.MOCK_NCCL_LOG = log;
  });
  afterEach(() => {
    for (const device of open.splice(0)) device.dispose();
    for (const name of ['MOCK_NCCL_FAIL', 'MOCK_NCCL_VERSION']) delete process.env[name];
    rmSync(log, { force: true });
  });
  afterAll(() => {
    delete process.env.MOCK_NCCL_LOG;
    rmSync(folder, { recursive: true, force: true });
  });

  it('moves rows to their ranks and back, as bytes, in one group', async () => {
    const all = await ranks(3);
    const found = await Promise.all(
      all.map(async ({ device, communicator }, rank) => {
        const x = device.tensor(
          Float32Array.from({ length: 6 }, (_, i) => 10 * rank + i),
          [3, 2],
        );
        const y = device.empty([3, 2]);
        device.ops.all_to_all({ x, y, communicator });
        const z = device.empty([3, 2]);
        device.ops.all_gather({ x: y.view(0, [2]), y: z, communicator });
        return [[...(await y.readFloats())], [...(await z.readFloats())]];
      }),
    );
    expect(found.map(([y]) => y)).toEqual([
      [0, 1, 10, 11, 20, 21],
      [2, 3, 12, 13, 22, 23],
      [4, 5, 14, 15, 24, 25],
    ]);
    for (const [, z] of found) expect(z).toEqual([0, 1, 2, 3, 4, 5]);
    const own = calls().filter((line) => line.startsWith('1 ') || line.startsWith('-1 '));
    const order = own.filter((line) => line.startsWith('1 ')).map((line) => line.slice(2));
    // Eight bytes a row, as type 1 (bytes), to and from each rank in turn.
    expect(order).toEqual([
      'ncclCommInitRank 3 0 0',
      ...[0, 1, 2].flatMap((peer) => [`ncclSend 8 1 ${peer}`, `ncclRecv 8 1 ${peer}`]),
      'ncclAllGather 8 1 0',
    ]);
    expect(own.filter((line) => /Group(Start|End)/.test(line))).toHaveLength(6);
    await Promise.all(all.map(({ communicator }) => addon().closeCarrier(communicator)));
    expect(calls().filter((line) => line.includes('ncclCommDestroy'))).toHaveLength(3);
  });

  it('the gradient of a buffer that is updated by slices is whole in the slice of each rank, and costs one collective', async () => {
    const [length, size] = [3 * 32_768 + 5, 3];
    const values = (shard: number) => Float32Array.from({ length }, (_, i) => Math.sin(shard * 97 + i));
    const found = await summed({ size, length, isSliced: true }, async ({ rank, parameters, sum }) => {
      parameters.grads.write(values(rank));
      await sum.add(rank);
      await sum.finish();
      const grads = await parameters.grads.readFloats();
      const each = sliceLength(length, size);
      return [...grads.subarray(rank * each, (rank + 1) * each)];
    });
    expect(found.flat()).toEqual([...sumByTree(size, values)]);
    expect(calls().some((line) => line.includes('ncclAllGather'))).toBe(false);
  });

  it.each([
    [2, 2, 1000],
    [4, 2, 1000],
    [6, 4, 1 << 20],
    [5, 3, 200],
    [1, 2, 1000],
  ])(
    'the gradient of %i shards over %i ranks has the bits of their tree, in pieces of %i',
    async (shards, size, inFlight) => {
      const length = 1000;
      const values = (shard: number) =>
        Float32Array.from({ length }, (_, i) => Math.sin(shard * 97 + i) * 10 ** ((shard + i) % 6));
      const found = await summed({ size, length, shards, inFlight }, async ({ rank, parameters, sum }) => {
        const { begin, end } = shardsOf(shards, rank, size);
        for (let shard = begin; shard < end; shard++) {
          parameters.grads.write(values(shard));
          await sum.add(shard);
        }
        await sum.finish();
        return parameters.grads.readFloats();
      });
      const expected = sumByTree(shards, values);
      for (const each of found) expect(each).toEqual(expected);
    },
  );

  it.each([
    ['the slice of each rank', true],
    ['all of it', false],
  ])('a sum of gradients for %s takes little beside them', async (_, isSliced) => {
    const [length, size, inFlight] = [1 << 21, 2, 1 << 17];
    const beside = await summed({ size, length, isSliced, inFlight }, async ({ rank, device, sum }) => {
      await device.synchronize();
      device.resetPeak();
      const before = device.stats().liveBytes;
      await sum.add(rank);
      await sum.finish();
      const { peakBytes, liveBytes } = device.stats();
      return [peakBytes - before, liveBytes - before];
    });
    for (const [peak, live] of beside) {
      expect(live).toBe(0);
      // What is sent and what arrives, their sum, and the order; 8 MiB of gradients lie beside.
      expect(peak).toBeGreaterThan(2 * 4 * inFlight);
      expect(peak).toBeLessThanOrEqual(3 * 4 * inFlight);
    }
  });

  it('says which function failed, and why, and poisons the queue with it', async () => {
    const all = await ranks(2);
    process.env.MOCK_NCCL_FAIL = 'ncclSend';
    const { device, communicator } = all[0]!;
    const x = device.zeros([2, 4]);
    device.ops.all_to_all({ x, y: device.empty([2, 4]), communicator });
    await expect(device.synchronize()).rejects.toMatchObject({
      code: 'E_CLUSTER',
      op: 'all_to_all',
      message: expect.stringContaining(
        'all_to_all of rank 0 of 2 failed: ncclSend: internal error (so the test wants it)',
      ),
    });
  });

  it('lets what waits for a lost rank fail at once', async () => {
    const all = await ranks(2);
    const { device, communicator } = all[0]!;
    device.ops.all_gather({ x: device.zeros([4]), y: device.empty([2, 4]), communicator });
    const failed = device.synchronize().then(
      () => 'nothing',
      (error: Error) => error.message,
    );
    setTimeout(() => addon().cancelCarrier(communicator), 50);
    expect(await failed).toMatch(/all_gather of rank 0 of 2 failed: it was cancelled/);
  });

  it('refuses what is too old, is no NCCL, or is not there', async () => {
    process.env.MOCK_NCCL_VERSION = '21705';
    await expect(addon().ncclId(library)).rejects.toThrow(/is NCCL 2.17.5, expected 2.18.0 or newer/);
    await expect(addon().ncclId('libm.so.6')).rejects.toThrow(/libm.so.6 has no ncclGetVersion/);
    await expect(addon().ncclId(join(folder, 'none.so'))).rejects.toThrow(/NCCL does not load: .*none.so/);
    await expect(addon().openPlugin(library)).rejects.toThrow(/is no plugin of steptrain/);
  });

  it('refuses parts for another number of processes, a communicator that is closed, and a capture', async () => {
    const [{ device, communicator }] = (await ranks(1)) as [{ device: Device; communicator: number }];
    const x = device.zeros([2, 4]);
    const y = device.empty([2, 4]);
    expect(() => device.capture(() => device.ops.all_to_all({ x, y, communicator }))).toThrow(
      /all_to_all cannot be captured/,
    );
    device.ops.all_to_all({ x, y, communicator });
    await expect(device.synchronize()).rejects.toThrow(/2 parts for 1 processes/);
    await addon().closeCarrier(communicator);
    const other = openDevice('cpu', { threads: 1 });
    open.push(other);
    other.ops.all_gather({ x: other.zeros([4]), y: other.empty([1, 4]), communicator });
    await expect(other.synchronize()).rejects.toThrow(/communicator \d+ is not open/);
  });
});
