// Memory that the processes of a machine share: the bits of what passes, beside the queue and in it, and what happens without it.
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { type Carrier, openCarrier } from '../../src/cluster/carriers.js';
import type { Cluster } from '../../src/cluster/cluster.js';
import { addFloats, addTree, shardsOf } from '../../src/cluster/shards.js';
import { Waiting } from '../../src/cluster/waiting.js';
import { addon } from '../../src/native/addon.js';
import { StepTrainError } from '../../src/native/errors.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { gradientSum } from '../../src/train/sums/gradient-sum.js';
import { sliceLength } from '../../src/train/sums/slices.js';
import { Turns } from '../../src/train/sums/turns.js';
import { fellows } from '../cluster/fellows.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-shm-'));
const open: Device[] = [];
let files = 0;

async function ranks(size: number): Promise<{ device: Device; communicator: number }[]> {
  const path = join(folder, `rings-${files++}`);
  const found: { device: Device; communicator: number }[] = [];
  for (let rank = 0; rank < size; rank++) {
    const { communicator } = await addon().openShared(path, rank, size);
    const device = openDevice('cpu', { threads: 1 });
    open.push(device);
    found.push({ device, communicator });
  }
  rmSync(path);
  return found;
}

const close = (all: readonly { readonly communicator: number }[]) =>
  Promise.all(all.map(({ communicator }) => addon().closeCarrier(communicator)));

afterEach(() => {
  for (const device of open.splice(0)) device.dispose();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Layers of which the last two are one bucket, a tensor of another, and lengths that no part divides. */
const SIZES = [300_000, 200_000, 300_000, 7];
const NAMES = ['layers.0.a', 'layers.1.a', 'layers.2.a', 'head'].map((name) => `model.${name}.weight`);
const LENGTH = SIZES.reduce((sum, size) => sum + size, 0);
const gradient = (shard: number) =>
  Float32Array.from(
    { length: LENGTH },
    (_, i) => Math.sin(shard * 97 + (i % 1013)) * 10 ** ((shard + i) % 6),
  );
const gradients = Array.from({ length: 7 }, (_, shard) => gradient(shard));

describe('the sum of gradients through shared memory', () => {
  it.each([
    [2, 2, false],
    [4, 2, false],
    [7, 2, false],
    [6, 4, false],
    [5, 3, false],
    [1, 2, false],
    [3, 3, true],
    [4, 2, true],
    [1, 2, true],
  ])(
    'of %i shards over %i processes has the bits of their tree; in slices alone: %s',
    async (shards, size, isSliced) => {
      const all = await ranks(size);
      const found = await Promise.all(
        all.map(async ({ device, communicator }, rank) => {
          const parameters = new TrainableParameters(
            device,
            NAMES.map((name, i) => ({ name, shape: [SIZES[i]!], init: new Float32Array(SIZES[i]!) })),
          );
          const cluster = { rank, size, waiting: new Waiting() } as Cluster;
          await device.synchronize();
          const before = device.stats().liveBytes;
          device.resetPeak();
          const carrier = { name: 'shm', communicator } as Carrier;
          const sum = gradientSum(parameters, shards, cluster, carrier, isSliced);
          const { begin, end } = shardsOf(shards, rank, size);
          for (let shard = begin; shard < end; shard++) {
            parameters.grads.write(gradients[shard]!);
            for (const layer of [2, 1, 0]) sum.passed(shard, layer);
            await sum.add(shard);
          }
          await sum.finish();
          const grads = await parameters.grads.readFloats();
          const { peakBytes, liveBytes } = device.stats();
          expect(liveBytes).toBe(before);
          // What arrives at a time; with several shards also sums over earlier ones.
          if (end - begin < 2) expect(peakBytes - before).toBeLessThanOrEqual(4 << 20);
          parameters.dispose();
          return grads;
        }),
      );
      const expected = addTree(
        gradients.slice(0, shards).map((values, first) => ({ first, count: 1, values: values.slice() })),
        addFloats,
      );
      const each = isSliced ? sliceLength(LENGTH, size) : LENGTH;
      found.forEach((grads, rank) => {
        const first = isSliced ? rank * each : 0;
        const same = Buffer.from(grads.slice(first, first + each).buffer).equals(
          Buffer.from(expected.slice(first, first + each).buffer),
        );
        expect(same, `rank ${rank}`).toBe(true);
        // The others' slices have not come.
        if (isSliced && shards > 1) expect(grads).not.toEqual(expected);
      });
      await close(all);
    },
  );

  it('of several buffers at once goes in one order, also where a process has no shard', async () => {
    const all = await ranks(2);
    const shards = 1;
    const found = await Promise.all(
      all.map(async ({ device, communicator }, rank) => {
        const turns = new Turns();
        const cluster = { rank, size: 2, waiting: new Waiting() } as Cluster;
        const both = [0, 1].map((of) => {
          const parameters = new TrainableParameters(device, [
            { name: 'model.layers.0.w', shape: [300_000], init: new Float32Array(300_000) },
            { name: `model.layers.${1 + of}.w`, shape: [300_000], init: new Float32Array(300_000) },
          ]);
          const carrier = { name: 'shm', communicator } as Carrier;
          const sum = gradientSum(parameters, shards, cluster, carrier, false, { turns });
          return { parameters, sum };
        });
        const { begin, end } = shardsOf(shards, rank, 2);
        for (let shard = begin; shard < end; shard++) {
          both.forEach(({ parameters }, of) => {
            parameters.grads.write(gradients[of]!.subarray(0, 600_000));
          });
          for (const layer of [2, 1, 0]) for (const { sum } of both) sum.passed(shard, layer);
          for (const { sum } of both) await sum.add(shard);
        }
        for (const { sum } of both) await sum.finish();
        return Promise.all(both.map(({ parameters }) => parameters.grads.readFloats()));
      }),
    );
    for (const both of found)
      both.forEach((grads, of) => {
        expect(Buffer.from(grads.buffer).equals(Buffer.from(gradients[of]!.slice(0, 600_000).buffer))).toBe(
          true,
        );
      });
    await close(all);
  });

  it('comes behind what the queue of a process without a shard still computes', async () => {
    const all = await ranks(2);
    const length = 600_000;
    const found = await Promise.all(
      all.map(async ({ device, communicator }, rank) => {
        const { begin, end } = shardsOf(1, rank, 2);
        const cluster = { rank, size: 2, waiting: new Waiting() } as Cluster;
        const parameters = new TrainableParameters(device, [
          { name: 'model.layers.0.w', shape: [length], init: new Float32Array(length) },
        ]);
        // What precedes the sum: long work, then the last use of the gradients of before.
        const late = begin === end;
        const busy = device.keep(device.zeros([1 << 22]));
        if (late) for (let i = 0; i < 100; i++) device.ops.fill({ x: busy, value: i });
        const before = late ? device.keep(device.ops.copy({ x: parameters.grads }).y) : undefined;
        if (late) device.ops.fill({ x: parameters.grads, value: 0 });
        const carrier = { name: 'shm', communicator } as Carrier;
        const sum = gradientSum(parameters, 1, cluster, carrier);
        for (let shard = begin; shard < end; shard++) {
          parameters.grads.write(gradients[0]!.subarray(0, length));
          await sum.add(shard);
        }
        await sum.finish();
        return Promise.all([parameters.grads.readFloats(), before?.readFloats()]);
      }),
    );
    // Neither is the sum overwritten by the queue, nor what the queue reads by the sum.
    const bits = (values: Float32Array | undefined) => Buffer.from((values as Float32Array).buffer);
    const sum = bits(gradients[0]!.slice(0, length));
    expect(found.map(([grads]) => bits(grads).equals(sum))).toEqual([true, true]);
    const copies = found.flatMap(([, before]) => (before ? [bits(before)] : []));
    expect(copies.map((copy) => copy.equals(bits(new Float32Array(length))))).toEqual([true]);
    await close(all);
  });

  it('goes on while the queue computes what is no part of it', async () => {
    const all = await ranks(2);
    const sums = all.map(({ device, communicator }, rank) => {
      const parameters = new TrainableParameters(
        device,
        NAMES.map((name, i) => ({ name, shape: [SIZES[i]!], init: new Float32Array(SIZES[i]!) })),
      );
      const cluster = { rank, size: 2, waiting: new Waiting() } as Cluster;
      const sum = gradientSum(parameters, 2, cluster, { name: 'shm', communicator } as Carrier);
      parameters.grads.write(gradients[rank]!);
      sum.passed(rank, 2);
      sum.passed(rank, 1);
      return { parameters, sum, device };
    });
    // Layers 1 and 2 are exchanged, while layer 0 changes.
    const layer0 = sums.map(({ parameters }, rank) => {
      parameters.grads.view(0, [SIZES[0]!]).write(gradients[rank + 2]!.subarray(0, SIZES[0]!));
      return rank;
    });
    for (const rank of layer0) await sums[rank]!.sum.add(rank);
    await Promise.all(sums.map(({ sum }) => sum.finish()));
    const of = (shards: readonly [number, number]) =>
      addFloats(gradients[shards[0]]!.slice(), gradients[shards[1]]!);
    for (const { parameters } of sums) {
      const grads = await parameters.grads.readFloats();
      expect(grads.subarray(0, SIZES[0]!)).toEqual(of([2, 3]).subarray(0, SIZES[0]!));
      expect(grads.subarray(SIZES[0]!)).toEqual(of([0, 1]).subarray(SIZES[0]!));
      parameters.dispose();
    }
    await close(all);
  });

  it('fails with a sentence where a process is lost while the others wait for it', async () => {
    const all = await ranks(2);
    const { device, communicator } = all[0]!;
    const parameters = new TrainableParameters(device, [
      { name: 'w', shape: [9], init: new Float32Array(9) },
    ]);
    const cluster = { rank: 0, size: 2, waiting: new Waiting() } as Cluster;
    const sum = gradientSum(parameters, 2, cluster, { name: 'shm', communicator } as Carrier);
    await sum.add(0);
    const failed = expect(sum.finish()).rejects.toMatchObject({
      code: 'E_CLUSTER',
      message: expect.stringContaining(
        'the sum of gradients of rank 0 of 2 failed: it was cancelled, since a process of the job was lost',
      ),
    });
    setTimeout(() => addon().cancelCarrier(communicator), 50);
    await failed;
  });
});

it('ops move rows to their ranks and back, also those longer than the memory between them', async () => {
  const [size, length] = [3, 200_003];
  const all = await ranks(size);
  const value = (from: number, to: number, i: number) => from * 1e6 + to * 1e5 + (i % 9973);
  const found = await Promise.all(
    all.map(async ({ device, communicator }, rank) => {
      const rows = Float32Array.from({ length: size * length }, (_, i) =>
        value(rank, Math.floor(i / length), i % length),
      );
      const [x, y] = [device.tensor(rows, [size, length]), device.empty([size, length])];
      device.ops.all_to_all({ x, y, communicator });
      const z = device.empty([size, length]);
      device.ops.all_gather({ x: y.view(0, [length]), y: z, communicator });
      return [await y.readFloats(), await z.readFloats()] as const;
    }),
  );
  const at = (of: (row: number, i: number) => number) =>
    Float32Array.from({ length: size * length }, (_, i) => of(Math.floor(i / length), i % length));
  found.forEach(([y, z], rank) => {
    expect(Buffer.from(y.buffer).equals(Buffer.from(at((row, i) => value(row, rank, i)).buffer))).toBe(true);
    expect(Buffer.from(z.buffer).equals(Buffer.from(at((row, i) => value(0, row, i)).buffer))).toBe(true);
  });
  await close(all);
});

describe('opening it', () => {
  const of = (size: number, localSize = size) =>
    fellows(size).map(
      (fellow) =>
        ({
          ...fellow,
          place: { rank: fellow.rank, size, localRank: fellow.rank, localSize, mpi: false },
          lost: new AbortController().signal,
        }) as Cluster,
    );
  const opening = (clusters: readonly Cluster[], wanted: 'auto' | 'shm' | 'tcp', device = 'cpu') =>
    Promise.all(clusters.map((cluster) => openCarrier(cluster, { wanted, device })));

  it('is what processors of one machine take, unless they are told to use sockets', async () => {
    const carriers = await opening(of(3), 'auto');
    expect(carriers.map((carrier) => carrier?.name)).toEqual(['shm', 'shm', 'shm']);
    await Promise.all(carriers.map((carrier) => carrier?.close()));
    expect(await opening(of(3), 'tcp')).toEqual([undefined, undefined, undefined]);
    expect(await opening(of(2, 1), 'auto')).toEqual([undefined, undefined]);
    expect(await opening(of(2), 'auto', 'cuda:0')).toEqual([undefined, undefined]);
  });

  it.each([
    [2, 1, 'cpu', /^run\.collectives is shm, and of rank 0 only 1 of 2 processes are on its machine$/],
    [
      2,
      2,
      'cuda:0',
      /^run\.collectives is shm, and of rank 0 the device is cuda:0; shared memory is the host's$/,
    ],
  ] as const)('refuses %i processes, %i on the machine, on %s', async (size, localSize, device, sentence) => {
    await expect(opening(of(size, localSize), 'shm', device)).rejects.toThrow(sentence);
  });

  it.skipIf(!existsSync('/dev/shm'))(
    'leaves no file in /dev/shm where a process is lost meanwhile',
    async () => {
      const before = new Set(readdirSync('/dev/shm'));
      let made: readonly string[] = [];
      const lost = new StepTrainError('E_CLUSTER', 'rank 1 ended');
      const clusters = of(2).map((cluster) => {
        let calls = 0;
        const gather = async (bytes: Uint8Array) => {
          // What stands against it, its name, whether it is made, whether all have opened it.
          if (++calls < 4) return cluster.gather(bytes);
          made = readdirSync('/dev/shm').filter((name) => name.startsWith('steptrain-') && !before.has(name));
          throw lost;
        };
        return { ...cluster, gather };
      });
      const ended = await Promise.allSettled(
        clusters.map((each) => openCarrier(each, { wanted: 'shm', device: 'cpu' })),
      );
      expect(ended.map((each) => each.status === 'rejected' && each.reason)).toEqual([lost, lost]);
      expect(made.length).toBeGreaterThan(0);
      expect(made.filter((name) => existsSync(`/dev/shm/${name}`))).toEqual([]);
    },
  );

  it('is passed over with a word where it does not open', async () => {
    const said: string[] = [];
    const open = vi.spyOn(addon(), 'openShared').mockRejectedValue(new Error('there is no room'));
    try {
      const options = { wanted: 'auto', device: 'cpu', say: (text: string) => said.push(text) } as const;
      const carriers = await Promise.all(of(2).map((each) => openCarrier(each, options)));
      expect(carriers).toEqual([undefined, undefined]);
      expect(said).toEqual(['run.collectives: TCP carries the gradients, since of rank 0 there is no room']);
    } finally {
      open.mockRestore();
    }
  });

  it('says why a file does not open, and leaves none that it has made', async () => {
    const path = join(folder, 'taken');
    writeFileSync(path, 'something else');
    await expect(addon().openShared(path, 0, 2)).rejects.toThrow(/taken does not open: File exists$/);
    await expect(addon().openShared(path, 1, 2)).rejects.toThrow(/taken does not open: Invalid argument$/);
    const missing = join(folder, 'none');
    await expect(addon().openShared(missing, 1, 2)).rejects.toThrow(/none does not open: No such file/);
    expect(existsSync(missing)).toBe(false);
  });
});
