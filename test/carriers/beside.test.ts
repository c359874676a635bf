// Bytes that travel beside the queue, as those of NCCL do on a stream of their own: the queue goes on meanwhile, what follows
// `arrived` has them, and sums keep their bits. Shared memory carries them here, on a thread beside the queue's.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import type { Carrier } from '../../src/cluster/carriers.js';
import type { Cluster } from '../../src/cluster/cluster.js';
import { addFloats, additions, addTree, sumsHeld } from '../../src/cluster/shards.js';
import { followingLayer, ShardedLayers } from '../../src/models/sharded-layers.js';
import { addon } from '../../src/native/addon.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { overShards, slicedBuffers } from '../../src/train/sums/data-parallel.js';
import { fellows } from '../cluster/fellows.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-beside-'));
const open: Device[] = [];
let files = 0;
afterEach(() => {
  for (const device of open.splice(0)) device.dispose();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Rank {
  readonly device: Device;
  readonly communicator: number;
  readonly cluster: Cluster;
}

async function ranks(size: number): Promise<Rank[]> {
  const path = join(folder, `rings-${files++}`);
  const found: Rank[] = [];
  for (const cluster of fellows(size)) {
    const { communicator } = await addon().openShared(path, cluster.rank, size);
    const device = openDevice('cpu', { threads: 1 });
    open.push(device);
    found.push({ device, communicator, cluster });
  }
  return found;
}

/** What each of `size` processes finds. */
async function inRanks<Found>(size: number, use: (rank: Rank) => Promise<Found>): Promise<Found[]> {
  const all = await ranks(size);
  const found = await Promise.all(all.map(use));
  await Promise.all(all.map(({ communicator }) => addon().closeCarrier(communicator)));
  return found;
}

describe('bytes beside the queue', () => {
  it.each(['all_to_all', 'all_gather'] as const)(
    'of %s are waited for by what follows `arrived`, and by nothing before',
    async (op) => {
      let begin = () => {};
      const begun = new Promise<void>((resolve) => {
        begin = resolve;
      });
      const found = await inRanks(2, async ({ device, communicator, cluster: { rank } }) => {
        if (rank === 1) await begun;
        const x = device.tensor(
          Float32Array.of(10 * rank + 1, 10 * rank + 2),
          op === 'all_gather' ? [2] : [2, 1],
        );
        const y = device.empty(op === 'all_gather' ? [2, 2] : [2, 1]);
        device.ops[op]({ x, y, communicator, beside: true });
        // The other process has sent nothing yet.
        const { y: doubled } = device.ops.scale({ x, factor: 2 });
        expect([...(await doubled.readFloats())]).toEqual([20 * rank + 2, 20 * rank + 4]);
        if (rank === 0) begin();
        device.ops.arrived({ y, communicator });
        return [...(await y.readFloats())];
      });
      expect(found).toEqual(
        op === 'all_gather'
          ? [
              [1, 2, 11, 12],
              [1, 2, 11, 12],
            ]
          : [
              [1, 11],
              [2, 12],
            ],
      );
    },
  );

  it('come before those of an op that the queue waits for', async () => {
    const found = await inRanks(3, async ({ device, communicator, cluster: { rank } }) => {
      const x = device.tensor(Float32Array.of(rank));
      const [beside, after] = [device.empty([3, 1]), device.empty([3, 1])];
      device.ops.all_gather({ x, y: beside, communicator, beside: true });
      device.ops.all_gather({ x: device.ops.scale({ x, factor: -1 }).y, y: after, communicator });
      return [...(await after.readFloats()), ...(await beside.readFloats())];
    });
    for (const each of found) expect(each).toEqual([-0, -1, -2, 0, 1, 2]);
  });

  it('fail what waits for them once a process is lost, and cannot be captured', async () => {
    const [{ device, communicator }] = (await ranks(2)) as [Rank, Rank];
    const y = device.empty([2, 4]);
    const x = device.zeros([4]);
    expect(() => device.capture(() => device.ops.arrived({ y, communicator }))).toThrow(
      /arrived cannot be captured/,
    );
    expect(() => device.capture(() => device.ops.all_gather({ x, y, communicator, beside: true }))).toThrow(
      /all_gather cannot be captured/,
    );
    device.ops.all_gather({ x, y, communicator, beside: true });
    await device.synchronize();
    device.ops.arrived({ y, communicator });
    setTimeout(() => addon().cancelCarrier(communicator), 20);
    await expect(device.synchronize()).rejects.toMatchObject({
      code: 'E_CLUSTER',
      message: expect.stringMatching(/^all_gather of rank 0 of 2 failed: /),
    });
  });

  it('end before a device that is disposed of', async () => {
    const all = await ranks(2);
    for (const { device, communicator } of all)
      device.ops.all_gather({
        x: device.zeros([1 << 18]),
        y: device.empty([2, 1 << 18]),
        communicator,
        beside: true,
      });
    await Promise.all(all.map(({ device }) => device.synchronize()));
    for (const { device } of all) device.dispose();
  });
});

const bytesOf = (values: Float32Array) => createHash('sha256').update(values).digest('hex');

const SIZES = [300_000, 200_000, 300_000, 7];
const NAMES = ['layers.0.a', 'layers.1.a', 'layers.2.a', 'head'].map((name) => `model.${name}.weight`);
const LENGTH = SIZES.reduce((sum, size) => sum + size, 0);
const fresh = (device: Device) =>
  new TrainableParameters(
    device,
    NAMES.map((name, i) => ({ name, shape: [SIZES[i]!], init: new Float32Array(SIZES[i]!) })),
  );
/** Of a shard and a buffer, which the tests do not change. */
const gradients = Array.from({ length: 9 }, (_, of) =>
  Float32Array.from(
    { length: LENGTH },
    (_, i) => (((i + of * 97) % 1013) - 506) * 1.3 * 10 ** ((of + i) % 6),
  ),
);
const gradient = (shard: number, buffer = 0) => gradients[shard + 2 * buffer] as Float32Array;
const sumOf = (shards: number, buffer: number) =>
  addTree(
    Array.from({ length: shards }, (_, first) => ({
      first,
      count: 1,
      values: gradient(first, buffer).slice(),
    })),
    addFloats,
  );

describe('gradients beside the backward pass, by ops', () => {
  it.each([
    [2, 2, false],
    [4, 2, true],
    [7, 2, false],
    [6, 4, false],
    [5, 3, true],
    // A process without a shard, and two buffers in one order.
    [1, 2, false],
    [2, 3, false],
  ])(
    'of %i shards over %i processes have the bits of their tree; in slices: %s',
    async (shards, size, isSliced) => {
      const found = await inRanks(size, async ({ device, communicator, cluster }) => {
        const both = [fresh(device), fresh(device)];
        if (isSliced) for (const each of both) slicedBuffers.add(each);
        await device.synchronize();
        const before = device.stats().liveBytes;
        device.resetPeak();
        const carrier = { name: 'nccl', communicator } as Carrier;
        const items = Array.from({ length: shards }, (_, shard) => ({ shard }));
        await overShards(items, both, { shards, cluster, carrier }, async (own, passed) => {
          for (const { shard } of own) {
            both.forEach(({ grads }, i) => {
              grads.write(gradient(shard, i));
            });
            for (const layer of [2, 1, 0]) await passed(layer);
          }
          return [];
        });
        const { liveBytes, peakBytes } = device.stats();
        expect(liveBytes).toBe(before);
        // Of each buffer sums over earlier shards; of a piece rows that are sent and that arrive, of that before it a sum and its part.
        const { rows } = additions(shards, size);
        const longest = 500_100;
        const most = LENGTH * sumsHeld(shards, size) + (2 * rows + 2) * longest;
        expect(peakBytes - before).toBeLessThan(2 * 4 * most);
        return Promise.all(both.map(({ grads }) => grads.readFloats()));
      });
      const expected = [0, 1].map((buffer) => sumOf(shards, buffer));
      for (const each of found) expect(each.map(bytesOf)).toEqual(expected.map(bytesOf));
    },
  );

  it('are on their way while the next layer is computed', async () => {
    let begin = () => {};
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    const found = await inRanks(2, async ({ device, communicator, cluster }) => {
      const parameters = fresh(device);
      const carrier = { name: 'nccl', communicator } as Carrier;
      await overShards([0, 1], [parameters], { shards: 2, cluster, carrier }, async ([shard], passed) => {
        if (cluster.rank === 1) await begun;
        parameters.grads.write(gradient(shard as number));
        await passed(2);
        // Nothing in the queue waits for the other process, which has not begun.
        await device.synchronize();
        begin();
        await passed(0);
        return [];
      });
      return parameters.grads.readFloats();
    });
    for (const each of found) expect(each).toEqual(sumOf(2, 0));
  });
});

describe('layers that are gathered ahead', () => {
  const LAYERS = 4;
  const specs = Array.from({ length: LAYERS }, (_, layer) => ({
    name: `model.layers.${layer}.w.weight`,
    shape: [64, 65],
    kind: 'linear' as const,
  }));
  const weight = (layer: number) => Float32Array.from({ length: 64 * 65 }, (_, i) => layer * 10_000 + i);

  function divided({ device, communicator, cluster: { rank, size } }: Rank, ahead: boolean) {
    const layers = new ShardedLayers(device, 'f32', specs as never, { communicator, rank, size, ahead });
    for (const [layer, { name, shape }] of specs.entries()) {
      const value = device.tensor(weight(layer), shape);
      layers.store(name, value);
      value.dispose();
    }
    const read = (layer: number) =>
      layers.during(layer, () => {
        const { value } = layers.get(specs[layer]?.name as string) as { value: ReturnType<Device['zeros']> };
        return value.readFloats();
      });
    return { layers, read };
  }

  it.each([true, false])(
    'are those of a whole base, up and down and from anywhere; ahead: %s',
    async (ahead) => {
      const order = [0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 0, 2, 1, 3];
      await inRanks(3, async (rank) => {
        const { device } = rank;
        const { layers, read } = divided(rank, ahead);
        await device.synchronize();
        device.resetPeak();
        const held = device.stats().liveBytes;
        for (const layer of order) expect(await read(layer)).toEqual(weight(layer));
        const layerBytes = 4 * 3 * Math.ceil((64 * 65) / 3 / 64) * 64;
        expect(device.stats().peakBytes - held).toBeLessThanOrEqual((ahead ? 2 : 1) * layerBytes + 4096);
        layers.dispose();
        await device.synchronize();
      });
    },
  );

  it('are there though the others do not yet need them', async () => {
    let begin = () => {};
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    await inRanks(2, async (rank) => {
      const { layers, read } = divided(rank, true);
      await read(0);
      if (rank.cluster.rank === 1) await begun;
      expect(await read(1)).toEqual(weight(1));
      begin();
      await read(2);
      layers.dispose();
      await rank.device.synchronize();
    });
  });

  it('are let go on a device that has failed', async () => {
    const [one, other] = (await ranks(2)) as [Rank, Rank];
    const { layers, read } = divided(one, true);
    const others = divided(other, false);
    await Promise.all([read(0), others.read(0)]);
    setTimeout(() => addon().cancelCarrier(one.communicator), 20);
    await expect(read(1)).rejects.toMatchObject({ code: 'E_CLUSTER' });
    expect(() => one.device.zeros([1])).toThrow(/^this device failed earlier/);
    layers.dispose();
    expect(one.device.stats().liveBytes).toBe(0);
    others.layers.dispose();
  });

  it('are the next of a forward and of a backward', () => {
    const follows = (order: readonly number[], count: number) =>
      order.map((layer, i) => followingLayer(order[i - 1], layer, count));
    expect(follows([0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 1], 3)).toEqual([
      1,
      2,
      undefined,
      1,
      0,
      undefined,
      1,
      2,
      undefined,
      1,
      2,
    ]);
    expect(follows([0, 1, 1, 0, 0, 1], 2)).toEqual([1, undefined, 0, undefined, 1, undefined]);
    expect(follows([0, 0], 1)).toEqual([undefined, undefined]);
  });
});
