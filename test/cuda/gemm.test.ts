import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import {
  dwBound,
  KEY,
  type Numbers,
  type Problem,
  reference,
  type Storage,
  tolerance,
} from '../ops/gemm-reference.js';
import { maxDifference, random } from '../ops/numbers.js';
import { exact, naive, stored, tensorCores } from '../ops/precision.js';
import { EMULATED, gpus, roundAlike, skipped } from './gpu.js';
import { made, withKernels } from './two-devices.js';

/** T, N, K, r: single elements, odd extents, extents of whole 16 bytes, several tiles, depths of several stages. */
const sizes = [
  [1, 1, 1, 1],
  [3, 5, 7, 2],
  [8, 40, 64, 8],
  [17, 70, 31, 16],
  [70, 72, 136, 20],
  [65, 130, 200, 40],
  [130, 136, 160, 8],
] as const;

function problemOf([T, N, K, r]: readonly number[], rows: Storage, weights: Storage, dropout: number) {
  const problem: Problem = {
    T: T!,
    N: N!,
    K: K!,
    r: r!,
    x: stored(random(T! * K!, 1), rows),
    w: stored(random(N! * K!, 2), weights),
    bias: stored(random(N!, 3), weights),
    a: random(r! * K!, 4),
    b: random(N! * r!, 5),
    dy: stored(random(T! * N!, 6), rows),
    scale: 0.75,
    dropout,
    rowIds: Int32Array.from({ length: T! }, (_, t) => 100 + Math.floor(t / 5)),
    positions: Int32Array.from({ length: T! }, (_, t) => t % 5),
  };
  return problem;
}

/** Every op of the family. Gradients are added to `held`; x, w and dy lie `offset` elements past an aligned address. */
async function run(device: Device, p: Problem, rows: Storage, weights: Storage, offset = 0, held = 0) {
  const { T, N, K, r, scale, dropout } = p;
  const at = (values: Numbers, shape: readonly number[], dtype: Storage, by = 0) =>
    made(device, { values: Float32Array.from(values), shape, dtype, offset: by });
  const [x, w, dy] = [
    at(p.x, [T, K], rows, offset),
    at(p.w, [N, K], weights, offset),
    at(p.dy, [T, N], rows, offset),
  ];
  const lora = {
    lora_a: at(p.a, [r, K], 'f32'),
    lora_b: at(p.b, [N, r], 'f32'),
    row_ids: device.tensor(Int32Array.from(p.rowIds)),
    positions: device.tensor(Int32Array.from(p.positions)),
  };
  const scalars = { scale, dropout, key0: KEY[0], key1: KEY[1] };
  const bias = p.bias && at(p.bias, [N], weights);
  const { y, u } = device.ops.linear({ x, w, bias, ...lora, ...scalars, u: true });
  const filled = (...shape: number[]) =>
    device.tensor(new Float32Array(shape.reduce((a, b) => a * b)).fill(held), shape);
  const [da, db, dw, dbias] = [filled(r, K), filled(N, r), filled(N, K), filled(N)];
  const given = { dy, w, ...lora, x, u, da, db, ...scalars };
  const { dx, v } = device.ops.linear_dx({ ...given, accumulate: false, v: true });
  device.ops.linear_dw({ x, dy, dw, db: dbias });
  const read: Record<string, Float32Array> = {};
  for (const [name, tensor] of Object.entries({ y, u, dx, v, da, db, dw, dbias }))
    read[name] = await tensor.readFloats();
  return read;
}

describe.skipIf(gpus.length === 0)(`gemm on cuda:0${skipped}`, () => {
  let gpu: Device;
  beforeAll(() => {
    gpu = openDevice('cuda:0');
  });
  afterAll(() => gpu.dispose());

  describe.each([
    ['f32', 'f32'],
    ['bf16', 'bf16'],
    ['bf16', 'f32'],
    ['f32', 'bf16'],
  ] as const)('%s rows, %s weights', (rows, weights) => {
    it.each(sizes)('%d rows, %d outputs, %d features, rank %d', async (...size) => {
      for (const dropout of [0, 0.4]) {
        const problem = problemOf(size, rows, weights, dropout);
        const want = reference(problem, exact);
        const low = reference(problem, rows === 'bf16' ? tensorCores : naive('f32'));
        const got = await run(gpu, problem, rows, weights);
        for (const name of Object.keys(want) as (keyof typeof want)[]) {
          const sumsF32 = name === 'dw' && rows === 'bf16';
          const bound = sumsF32 ? dwBound(problem) : tolerance(low[name], want[name], rows);
          expect(maxDifference(got[name]!, want[name]), name).toBeLessThanOrEqual(bound);
        }
      }
    });
  });

  it.skipIf(gpus[0] === EMULATED)('agrees with the CPU on a product that fills a GPU', async () => {
    const problem = problemOf([1600, 1544, 1480, 16], 'bf16', 'bf16', 0.1);
    const cpu = openDevice('cpu');
    const [got, want] = [await run(gpu, problem, 'bf16', 'bf16'), await run(cpu, problem, 'bf16', 'bf16')];
    cpu.dispose();
    for (const [name, values] of Object.entries(want)) {
      const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      expect(maxDifference(got[name]!, values), name).toBeLessThan(largest * 2 ** -7);
    }
  });

  it.each(['f32', 'bf16'] as const)('gives the same bits at any address, in %s', async (dtype) => {
    const problem = problemOf([70, 136, 104, 8], dtype, dtype, 0.2);
    const [found, want] = [
      await run(gpu, problem, dtype, dtype, 1),
      await run(gpu, problem, dtype, dtype, 0),
    ];
    if (dtype === 'f32') return expect(found).toEqual(want);
    // The kernels for few rows, and Hopper's, only take operands at multiples of 16 bytes.
    for (const [name, values] of Object.entries(want)) {
      const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      expect(maxDifference(found[name]!, values), name).toBeLessThan(largest * 2 ** -7);
    }
  });

  it.each(['f32', 'bf16'] as const)('gives a row the same bits in any batch, in %s', async (dtype) => {
    const [T, N, K] = [150, 264, 72];
    const x = random(T * K, 1);
    const w = gpu.tensor(random(N * K, 2), [N, K], dtype);
    const rowsOf = async (from: number, to: number) => {
      const cut = gpu.tensor(x.slice(from * K, to * K), [to - from, K], dtype);
      return gpu.ops.linear({ x: cut, w, scale: 1 }).y.readFloats();
    };
    const all = await rowsOf(0, T);
    expect(await rowsOf(37, 60)).toEqual(all.slice(37 * N, 60 * N));
    const few = await rowsOf(37, 45);
    expect(await rowsOf(40, 41)).toEqual(few.slice(3 * N, 4 * N));
    if (roundAlike(gpu, 8, T)) expect(few).toEqual(all.slice(37 * N, 45 * N));
  });

  describe.each(['verified', 'new'])('of a LoRA pair, kernels: %s', (kernels) => {
    let gpu: Device;
    beforeAll(() => {
      gpu = withKernels(kernels);
    });
    afterAll(() => gpu.dispose());

    it.each([
      [300, 600, 136, 16],
      [70, 264, 264, 27],
      [33, 8, 8, 1],
      [700, 72, 136, 12],
      [400, 264, 40, 64],
      [300, 17, 35, 30],
      [40, 24, 32, 72],
      [300, 40, 64, 77],
    ])('sums %d tokens, %d outputs, %d features, rank %d', async (...size) => {
      for (const dropout of [0, 0.4]) {
        const problem = problemOf(size, 'bf16', 'bf16', dropout);
        const [want, low] = [reference(problem, exact), reference(problem, tensorCores)];
        const [got, again] = [
          await run(gpu, problem, 'bf16', 'bf16'),
          await run(gpu, problem, 'bf16', 'bf16'),
        ];
        for (const name of Object.keys(want) as (keyof typeof want)[]) {
          const bound = name === 'dw' ? dwBound(problem) : tolerance(low[name], want[name], 'bf16');
          expect(maxDifference(got[name]!, want[name]), name).toBeLessThanOrEqual(bound);
        }
        expect(again).toEqual(got);
      }
    });

    it.each([
      [300, 136, 200, 24],
      [300, 520, 136, 12],
    ])('gives a row of u and v the same bits in any batch: %d x %d x %d, rank %d', async (...size) => {
      const all = problemOf(size, 'bf16', 'bf16', 0.2);
      const [from, to] = [133, 150];
      const rows = (values: Numbers, width: number) => Array.from(values).slice(from * width, to * width);
      const few: Problem = {
        ...all,
        T: to - from,
        x: rows(all.x, all.K),
        dy: rows(all.dy, all.N),
        rowIds: rows(all.rowIds, 1),
        positions: rows(all.positions, 1),
      };
      const [of, alone] = [await run(gpu, all, 'bf16', 'bf16'), await run(gpu, few, 'bf16', 'bf16')];
      for (const [name, width] of [
        ['u', all.r],
        ['v', all.r],
        ['y', all.N],
        ['dx', all.K],
      ] as const)
        expect(rows(of[name]!, width), name).toEqual(Array.from(alone[name]!));
    });

    it.each([8, 5])(
      'of rank %i takes one launch more than the frozen product, and one or two for its gradients',
      async (rank) => {
        const tensor = (rows: number, columns: number, dtype: Storage) =>
          gpu.tensor(random(rows * columns), [rows, columns], dtype);
        const [x, w, lora_a, lora_b] = [
          tensor(8, 32, 'bf16'),
          tensor(40, 32, 'bf16'),
          tensor(rank, 32, 'f32'),
          tensor(40, rank, 'f32'),
        ];
        const count = async <T>(body: () => T) => {
          await gpu.synchronize();
          const before = gpu.stats().launches;
          const made = body();
          await gpu.synchronize();
          return [gpu.stats().launches - before, made] as const;
        };
        const scalars = { scale: 1, dropout: 0, key0: 0, key1: 0 };
        const [forward, { y, u }] = await count(() =>
          gpu.ops.linear({ x, w, lora_a, lora_b, ...scalars, u: true }),
        );
        const pair = { lora_a, lora_b, ...scalars };
        const [backward] = await count(() => gpu.ops.linear_dx({ dy: y, w, ...pair }));
        const gradients = { x, u, da: gpu.zeros([rank, 32]), db: gpu.zeros([40, rank]) };
        const [both] = await count(() => gpu.ops.linear_dx({ dy: y, w, ...pair, ...gradients }));
        // With v in one pass over dy: db's launch is gone, and one adds what blocks of both leave.
        expect([forward, backward, both]).toEqual([2, 2, kernels === 'new' ? 4 : 3]);
      },
    );
  });

  it('adds to gradients and, with accumulate, to dx', async () => {
    const problem = problemOf([9, 16, 24, 4], 'f32', 'f32', 0);
    const [zero, held] = [
      await run(gpu, problem, 'f32', 'f32', 0, 0),
      await run(gpu, problem, 'f32', 'f32', 0, 2),
    ];
    for (const name of ['da', 'db', 'dw', 'dbias']) {
      expect(
        maxDifference(
          held[name]!,
          zero[name]!.map((g) => g + 2),
        ),
        name,
      ).toBeLessThan(1e-5);
    }
    const dx = gpu.tensor(new Float32Array(9 * 24).fill(3), [9, 24]);
    const [dy, w] = [
      gpu.tensor(Float32Array.from(problem.dy), [9, 16]),
      gpu.tensor(Float32Array.from(problem.w), [16, 24]),
    ];
    const plain = await gpu.ops.linear_dx({ dy, w, accumulate: false }).dx.readFloats();
    gpu.ops.linear_dx({ dy, w, dx, accumulate: true });
    expect(
      maxDifference(
        await dx.readFloats(),
        plain.map((g) => g + 3),
      ),
    ).toBeLessThan(1e-5);
  });

  it('accepts 0 rows and 0 features', async () => {
    const w = gpu.tensor(random(40), [5, 8], 'bf16');
    const none = gpu.ops.linear({ x: gpu.empty([0, 8], 'bf16'), w, scale: 1 }).y;
    expect(await none.readFloats()).toHaveLength(0);
    const bias = gpu.tensor(Float32Array.of(1, 2, 3));
    const only = gpu.ops.linear({ x: gpu.empty([2, 0]), w: gpu.empty([3, 0]), bias, scale: 1 }).y;
    expect(Array.from(await only.readFloats())).toEqual([1, 2, 3, 1, 2, 3]);
    const dw = gpu.tensor(random(40), [5, 8]);
    gpu.ops.linear_dw({ x: gpu.empty([0, 8]), dy: gpu.empty([0, 5]), dw });
    expect(await dw.readFloats()).toEqual(random(40));
  });

  it('launches one kernel for each product', async () => {
    const [x, w] = [gpu.tensor(random(64), [8, 8], 'bf16'), gpu.tensor(random(64), [8, 8], 'bf16')];
    await gpu.synchronize();
    const before = gpu.stats().launches;
    gpu.ops.linear({ x, w, scale: 1 });
    await gpu.synchronize();
    expect(gpu.stats().launches - before).toBe(1);
  });
});
