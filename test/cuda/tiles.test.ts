// Products beside the CPU's, on sizes that take every width of Hopper's tiles (cuda/gemm/sm90_tiles.cuh) on the emulator's three
// multiprocessors, and every way of a LoRA pair's own products.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { EMULATED, gpus, skipped } from './gpu.js';
import { openBoth, withKernels } from './two-devices.js';

/** T, N, K, rank: 256, 192 and 128 columns a tile in x·Wᵀ, and tiles that are cut into two; several rounds of a pair; depths that are not whole rounds. */
const sizes = [
  [400, 392, 200, 16],
  [272, 576, 72, 8],
  [272, 128, 264, 48],
  [400, 136, 72, 32],
] as const;
type Size = readonly [T: number, N: number, K: number, rank: number];

/**
 * For each layout a size whose last wave of tiles would leave multiprocessors idle, so that blocks share tiles
 * (cuda/gemm/stream_k.cuh): on the emulator's three also those of half the width, on a GPU of 100 to 140.
 */
const isEmulated = gpus[0] === EMULATED;
const shared = isEmulated
  ? ({ y: [400, 584, 840, 16], dx: [136, 840, 776, 8], dw: [840, 136, 776, 0] } as const)
  : ({ y: [2304, 2000, 1600, 16], dx: [2304, 1600, 2000, 8], dw: [1600, 2304, 2000, 0] } as const);

type Values = Record<string, Float32Array>;
const largest = (values: Float32Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

describe.skipIf(gpus.length === 0)(`products on cuda:0 by tiles${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });

  const of = (
    device: Device,
    shape: readonly [number, number],
    seed: number,
    dtype: 'f32' | 'bf16' = 'bf16',
  ) => device.tensor(stored(random(shape[0] * shape[1], seed), dtype), shape, dtype);

  /** An f32 factor that rounding to bf16 does not change. */
  const rounded = (device: Device, shape: readonly [number, number], seed: number) =>
    device.tensor(stored(random(shape[0] * shape[1], seed), 'bf16'), shape);
  /** The first rows of a matrix. */
  const head = (device: Device, T: number, columns: number, seed: number, rows: number) =>
    device.tensor(
      stored(random(T * columns, seed), 'bf16').slice(0, rows * columns),
      [rows, columns],
      'bf16',
    );

  async function plain(device: Device, [T, N, K]: Size, rows = T): Promise<Values> {
    const cut = (columns: number, seed: number) => head(device, T, columns, seed, rows);
    const [x, w, dy, residual] = [cut(K, 1), of(device, [N, K], 2), cut(N, 3), cut(N, 4)];
    const [narrow, wide] = [device.tensor(random(N, 5), [N], 'bf16'), device.tensor(random(N, 6))];
    const [dw, dx] = [of(device, [N, K], 7, 'f32'), cut(K, 8)];
    const made = {
      y: device.ops.linear({ x, w }).y,
      biased: device.ops.linear({ x, w, bias: wide }).y,
      added: device.ops.linear({ x, w, bias: narrow, residual }).y,
      dx: device.ops.linear_dx({ dy, w, accumulate: false }).dx,
    };
    device.ops.linear_dw({ x, dy, dw });
    device.ops.linear_dx({ dy, w, dx, accumulate: true });
    const read: Values = {};
    for (const [name, tensor] of Object.entries({ ...made, dw, accumulated: dx }))
      read[name] = await tensor.readFloats();
    return read;
  }

  async function adapted(device: Device, [T, N, K, r]: Size, dropout: number, scale: number, rows = T) {
    const cut = (columns: number, seed: number) => head(device, T, columns, seed, rows);
    const [x, dy, w] = [cut(K, 1), cut(N, 3), of(device, [N, K], 2)];
    const [lora_a, lora_b] = [rounded(device, [r, K], 4), rounded(device, [N, r], 5)];
    const [da, db] = [of(device, [r, K], 6, 'f32'), of(device, [N, r], 7, 'f32')];
    const ids = (divisor: number) =>
      device.tensor(Int32Array.from({ length: rows }, (_, t) => Math.floor(t / divisor)));
    const masked = { row_ids: ids(7), positions: ids(1), scale, dropout, key0: 99, key1: -5 };
    const { y, u } = device.ops.linear({ x, w, lora_a, lora_b, ...masked, u: true });
    const gradients = { x, u, da, db, accumulate: false, v: true } as const;
    const { dx, v } = device.ops.linear_dx({ dy, w, lora_a, lora_b, ...masked, ...gradients });
    const read: Values = {};
    for (const [name, tensor] of Object.entries({ y, u, dx, v, da, db }))
      read[name] = await tensor!.readFloats();
    return read;
  }

  async function swiglu(device: Device, [T, N, K, r]: Size, ranks: readonly [number, number], all: boolean) {
    const pair = (rank: number, seed: number) =>
      rank > 0 ? [rounded(device, [rank, K], seed), rounded(device, [N, rank], seed + 1)] : [];
    const [[gate_a, gate_b], [up_a, up_b]] = [pair(ranks[0] * r, 4), pair(ranks[1] * r, 6)];
    const { y, gate, up } = device.ops.linear_swiglu({
      ...{ x: of(device, [T, K], 1), w_gate: of(device, [N, K], 2), w_up: of(device, [N, K], 3) },
      ...{ gate_a, gate_b, up_a, up_b, gate_scale: 0.5, up_scale: 2, dropout: 0 },
      ...{ gate_key0: 0, gate_key1: 0, up_key0: 0, up_key1: 0 },
      ...(all ? { gate: true, up: true } : {}),
    });
    const read: Values = {};
    for (const [name, tensor] of Object.entries({ y, gate, up }))
      if (tensor) read[name] = await tensor.readFloats();
    return read;
  }

  // Both round to bf16, of sums in other orders; the GPU also what dropout leaves of x.
  const bounds: Record<string, number> = { v: 1e-5, dw: 1e-5 };
  const agree = (got: Values, want: Values) => {
    for (const [name, values] of Object.entries(want)) {
      const bound = largest(values) * (bounds[name] ?? 2 ** -7);
      expect(maxDifference(got[name]!, values), name).toBeLessThan(bound);
    }
  };
  it.each(sizes)('agree with the CPU: %d x %d x %d', async (...size) => {
    agree(await plain(gpu, size), await plain(cpu, size));
  });

  it.each(sizes)('agree on a LoRA pair: %d x %d x %d, rank %d', async (...size) => {
    for (const [dropout, scale] of [
      [0, 2],
      [0, 0.7],
      [0.3, 1.5],
    ] as const)
      agree(await adapted(gpu, size, dropout, scale), await adapted(cpu, size, dropout, scale));
  });

  it('give a row of u, v, y and dx the same bits in any batch', async () => {
    for (const size of sizes.filter(([T]) => T > 272)) {
      const [all, some] = [await plain(gpu, size), await plain(gpu, size, 272)];
      for (const name of ['y', 'biased', 'added', 'dx', 'accumulated'])
        expect(some[name], name).toEqual(all[name]!.slice(0, some[name]!.length));
    }
    const size = sizes[3];
    for (const dropout of [0, 0.3]) {
      const [all, some] = [
        await adapted(gpu, size, dropout, 1.5),
        await adapted(gpu, size, dropout, 1.5, 272),
      ];
      for (const name of ['u', 'v', 'y', 'dx'])
        expect(some[name], name).toEqual(all[name]!.slice(0, some[name]!.length));
    }
  });

  it.each(sizes)('agree on gate, up and their product: %d x %d x %d, rank %d', async (...size) => {
    for (const ranks of [
      [0, 0],
      [1, 1],
      [1, 0],
      [0, 1],
    ] as const) {
      const got = await swiglu(gpu, size, ranks, true);
      agree(got, await swiglu(cpu, size, ranks, true));
      expect((await swiglu(gpu, size, ranks, false)).y).toEqual(got.y);
    }
  });

  describe('that blocks share', () => {
    let whole: Device;
    let sharing: Device;
    beforeAll(() => {
      [whole, sharing] = [withKernels('verified'), withKernels('stream_k')];
    });
    afterAll(() => {
      for (const device of [whole, sharing]) device.dispose();
    });

    async function product(device: Device, name: keyof typeof shared): Promise<Values> {
      const [T, N, K, r] = shared[name];
      const [x, w, dy] = [of(device, [T, K], 1), of(device, [N, K], 2), of(device, [T, N], 3)];
      if (name === 'dw') {
        const dw = of(device, [N, K], 7, 'f32');
        device.ops.linear_dw({ x, dy, dw });
        return { dw: await dw.readFloats() };
      }
      const pair = { lora_a: rounded(device, [r, K], 4), lora_b: rounded(device, [N, r], 5) };
      const scalars = { scale: 0.7, dropout: 0, key0: 0, key1: 0 };
      const made =
        name === 'y'
          ? {
              plain: device.ops.linear({ x, w, bias: device.tensor(random(N, 6)), residual: dy }).y,
              adapted: device.ops.linear({ x, w, ...pair, ...scalars }).y,
            }
          : {
              plain: device.ops.linear_dx({ dy, w, dx: x, accumulate: true }).dx,
              adapted: device.ops.linear_dx({ dy, w, ...pair, ...scalars, accumulate: false }).dx,
            };
      const read: Values = {};
      for (const [of, tensor] of Object.entries(made)) read[of] = await tensor.readFloats();
      return read;
    }

    it.each(['y', 'dx', 'dw'] as const)('have the bits of whole tiles: %s', async (name) => {
      const got = await product(sharing, name);
      expect(got).toEqual(await product(whole, name));
      expect(await product(sharing, name)).toEqual(got); // the marks are set back
      if (isEmulated) agree(got, await product(cpu, name));
    });
  });
});
