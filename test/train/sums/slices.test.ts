// The slices of several processes: they cover all parameters, and their norm has the bits of the whole.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TrainableParameters } from '../../../src/autograd/parameters.js';
import type { Carrier } from '../../../src/cluster/carriers.js';
import type { Cluster } from '../../../src/cluster/cluster.js';
import { addon } from '../../../src/native/addon.js';
import { AdamW, refuseTooMany } from '../../../src/train/adamw.js';
import { divideBatches } from '../../../src/train/sums/data-parallel.js';
import { cutSegments, sliceOf } from '../../../src/train/sums/slices.js';
import { fellows } from '../../cluster/fellows.js';
import { isas, openTest } from '../../ops/devices.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const SHAPES = [[130, 300], [7], [40_000], [20_000]] as const;
const total = SHAPES.reduce((sum, shape) => sum + shape.reduce((product: number, n) => product * n, 1), 0);

it.each([1, 2, 3, 8])('cover all parameters in %i processes', (size) => {
  const slices = Array.from({ length: size }, (_, rank) =>
    sliceOf(total, { rank, size } as Cluster, undefined),
  );
  expect(slices[0]!.begin).toBe(0);
  expect(slices.at(-1)!.end).toBe(total);
  for (const [i, { begin }] of slices.slice(1).entries()) expect(begin).toBe(slices[i]!.end);
  for (const { begin } of slices) expect(begin === total || begin % 32_768 === 0).toBe(true);
  const offsets = [0, 39_000, 39_007, 79_007, total];
  const cut = slices.flatMap(({ begin, end }) => cutSegments(offsets, begin, end));
  const lengths = [0, 1, 2, 3].map((index) =>
    cut.filter((each) => each.index === index).reduce((sum, { length }) => sum + length, 0),
  );
  expect(lengths).toEqual([39_000, 7, 40_000, 20_000]);
});

/** Parameters and moments after steps of one process, or of each of several. */
async function updated(isa: string, cluster: Cluster | undefined, maxGradNorm: number) {
  const device = openTest(isa, { threads: 1 });
  if (cluster) divideBatches(device, { shards: 2, cluster, zero: 1 });
  const value = (i: number, of: number) => Math.sin(i * 0.37 + of) * 10 ** ((i + of) % 3);
  let at = 0;
  const parameters = new TrainableParameters(
    device,
    SHAPES.map((shape, i) => {
      const size = shape.reduce((product: number, n) => product * n, 1);
      at += size;
      return { name: `p${i}`, shape, init: Float32Array.from({ length: size }, (_, j) => value(at + j, 0)) };
    }),
  );
  const options = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.1, maxGradNorm };
  const optimizer = new AdamW(parameters, { ...options, rateOf: (name) => (name === 'p2' ? 3 : 1) });
  const steps = [];
  for (let step = 1; step <= 3; step++) {
    const gradient = Float32Array.from({ length: total }, (_, i) => value(i, step));
    if (step === 2) gradient[50_000] = Number.NaN;
    parameters.grads.write(gradient);
    steps.push(await optimizer.step(0.01));
  }
  const found = {
    steps,
    updates: optimizer.steps,
    values: await parameters.values.readFloats(),
    moments: await optimizer.moments(),
  };
  optimizer.dispose();
  parameters.dispose();
  device.dispose();
  return found;
}

it.each(
  isas.flatMap(
    (isa) =>
      [
        [isa, 1],
        [isa, 0],
      ] as const,
  ),
)('update as one process does, bit for bit, on %s with gradients clipped to %d', async (isa, maxGradNorm) => {
  const alone = await updated(isa, undefined, maxGradNorm);
  expect(alone.updates).toBe(2);
  for (const size of [2, 3]) {
    const all = await Promise.all(fellows(size).map((cluster) => updated(isa, cluster, maxGradNorm)));
    for (const found of all) {
      expect(found.steps.map(({ nonFinite }) => nonFinite)).toEqual([false, true, false]);
      expect(found.steps[0]).toEqual(alone.steps[0]);
      expect(found.steps[2]).toEqual(alone.steps[2]);
      expect(found.values).toEqual(alone.values);
    }
    // Rank 0 writes them.
    expect(all[0]!.moments).toEqual(alone.moments);
    expect(all[1]!.moments).toBeUndefined();
  }
});

describe('parameters after an update', () => {
  // Three pieces, the last of which is short, in slices of which the last is shorter.
  const EACH = 13_000_000;
  const value = (i: number) => Math.fround(i % 65_521);

  it.each(['shm', 'sockets'] as const)('are gathered in pieces, by %s', async (way) => {
    const size = 2;
    const path = join(temporaryDirectory(), 'rings');
    const longest: number[] = [];
    // Rank 0 makes what the other opens.
    const openings: Awaited<ReturnType<ReturnType<typeof addon>['openShared']>>[] = [];
    if (way === 'shm')
      for (let rank = 0; rank < size; rank++) openings.push(await addon().openShared(path, rank, size));
    const found = await Promise.all(
      fellows(size).map(async (fellow, rank) => {
        const cluster = {
          ...fellow,
          gather(bytes: Uint8Array) {
            longest.push(bytes.length);
            return fellow.gather(bytes);
          },
        };
        const device = openTest(undefined, { threads: 1 });
        const opened = way === 'shm' ? openings[rank] : undefined;
        const carrier = opened && ({ name: 'shm', communicator: opened.communicator } as Carrier);
        const slice = sliceOf(EACH, cluster, carrier);
        const { begin, end } = slice;
        const values = device.keep(
          device.tensor(
            Float32Array.from({ length: EACH }, (_, i) => (i >= begin && i < end ? value(i) : -1)),
          ),
        );
        await device.synchronize();
        const before = device.stats().liveBytes;
        device.resetPeak();
        await slice.share?.(values);
        const { peakBytes } = device.stats();
        const all = await values.readFloats();
        values.dispose();
        if (opened) await addon().closeCarrier(opened.communicator);
        device.dispose();
        return { wrong: all.findIndex((each, i) => each !== value(i)), peak: peakBytes - before };
      }),
    );
    const pieces = 4 << 22;
    for (const { wrong, peak } of found) {
      expect(wrong).toBe(-1);
      expect(peak).toBeLessThanOrEqual(way === 'shm' ? pieces + pieces / size : 0);
    }
    expect(longest.every((bytes) => bytes <= pieces / size)).toBe(true);
  });
});

it('of more elements than an array has are refused before anything is computed', () => {
  expect(() => refuseTooMany({ size: 100 }, 100)).not.toThrow();
  expect(() => refuseTooMany({ size: 7_600_000_000 }, 2 ** 32)).toThrow(
    /^7600000000 parameters are trained together, and a checkpoint in this Node \(v[\d.]+\) holds the moments of at most 4294967296:/,
  );
  const device = openTest();
  const many = { device, list: [], offsets: [0], size: 2 ** 53 } as unknown as TrainableParameters;
  const options = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 };
  expect(() => new AdamW(many, options)).toThrow(/are trained together/);
  device.dispose();
});
