// The successors of Hopper's products (`lora`, `tiles` of cuda/runtime/choice.h) beside the verified kernels, on sizes that take every
// width of tiles on the emulator's three multiprocessors.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { gpus, skipped } from './gpu.js';

/** T, N, K, rank: 256, 192 and 128 columns a tile in x·Wᵀ, and tiles that are cut into two; several rounds of a pair; depths that are not whole rounds. */
const sizes = [
  [400, 392, 200, 16],
  [272, 576, 72, 8],
  [272, 128, 264, 48],
  [400, 136, 72, 32],
] as const;
type Size = readonly [T: number, N: number, K: number, rank: number];

function opened(kernels: string): Device {
  const before = process.env.STEPTRAIN_KERNELS;
  process.env.STEPTRAIN_KERNELS = kernels;
  try {
    return openDevice('cuda:0');
  } finally {
    if (before === undefined) delete process.env.STEPTRAIN_KERNELS;
    else process.env.STEPTRAIN_KERNELS = before;
  }
}

type Values = Record<string, Float32Array>;
const largest = (values: Float32Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

describe.skipIf(gpus.length === 0)(`successors of products on cuda:0${skipped}`, () => {
  let verified: Device;
  const devices: Record<string, Device> = {};
  const names = ['lora', 'tiles', 'lora,tiles'] as const;
  beforeAll(() => {
    verified = opened('verified');
    for (const name of names) devices[name] = opened(name);
  });
  afterAll(() => {
    for (const device of [verified, ...Object.values(devices)]) device.dispose();
  });

  const of = (
    device: Device,
    shape: readonly [number, number],
    seed: number,
    dtype: 'f32' | 'bf16' = 'bf16',
  ) => device.tensor(stored(random(shape[0] * shape[1], seed), dtype), shape, dtype);

  async function plain(device: Device, [T, N, K]: Size): Promise<Values> {
    const [x, w, dy] = [of(device, [T, K], 1), of(device, [N, K], 2), of(device, [T, N], 3)];
    const residual = of(device, [T, N], 4);
    const [narrow, wide] = [device.tensor(random(N, 5), [N], 'bf16'), device.tensor(random(N, 6))];
    const [dw, dx] = [of(device, [N, K], 7, 'f32'), of(device, [T, K], 8)];
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
    const cut = (columns: number, seed: number) =>
      device.tensor(
        stored(random(T * columns, seed), 'bf16').slice(0, rows * columns),
        [rows, columns],
        'bf16',
      );
    const [x, dy, w] = [cut(K, 1), cut(N, 3), of(device, [N, K], 2)];
    const [lora_a, lora_b] = [of(device, [r, K], 4, 'f32'), of(device, [N, r], 5, 'f32')];
    const [da, db] = [of(device, [r, K], 6, 'f32'), of(device, [N, r], 7, 'f32')];
    const ids = (divisor: number) =>
      device.tensor(Int32Array.from({ length: rows }, (_, t) => Math.floor(t / divisor)));
    const masked = { row_ids: ids(7), positions: ids(1), scale, dropout, key0: 99, key1: -5 };
    const { y, u } = device.ops.linear({ x, w, lora_a, lora_b, ...masked, u: true });
    const { dx, v } = device.ops.linear_dx({ dy, w, lora_a, lora_b, ...masked, accumulate: false, v: true });
    device.ops.lora_grads({ x, dy, u, v, da, db, ...masked });
    const read: Values = {};
    for (const [name, tensor] of Object.entries({ y, u, dx, v, da, db }))
      read[name] = await tensor!.readFloats();
    return read;
  }

  async function swiglu(device: Device, [T, N, K, r]: Size, ranks: readonly [number, number], all: boolean) {
    const pair = (rank: number, seed: number) =>
      rank > 0 ? [of(device, [rank, K], seed, 'f32'), of(device, [N, rank], seed + 1, 'f32')] : [];
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

  it.each(sizes)('give plain products the same bits: %d x %d x %d', async (...size) => {
    expect(await plain(devices.tiles!, size)).toEqual(await plain(verified, size));
  });

  // u and v are summed in another order. Where they are then rounded to bf16 an element may fall to the other side.
  const bounds: Record<string, number> = { u: 2e-6, v: 2e-6, da: 2e-4, db: 2e-4 };
  const agree = (got: Values, want: Values) => {
    for (const [name, values] of Object.entries(want)) {
      const bound = largest(values) * (bounds[name] ?? 2 ** -7);
      expect(maxDifference(got[name]!, values), name).toBeLessThan(bound);
    }
  };
  it.each(sizes)('agree on a LoRA pair: %d x %d x %d, rank %d', async (...size) => {
    for (const [dropout, scale] of [
      [0, 2],
      [0, 0.7],
      [0.3, 1.5],
    ] as const) {
      const want = await adapted(verified, size, dropout, scale);
      for (const name of names) agree(await adapted(devices[name]!, size, dropout, scale), want);
    }
  });

  it('give a row of u, v, y and dx the same bits in any batch', async () => {
    const size = sizes[3];
    for (const dropout of [0, 0.3]) {
      const device = devices['lora,tiles']!;
      const [all, some] = [
        await adapted(device, size, dropout, 1.5),
        await adapted(device, size, dropout, 1.5, 272),
      ];
      for (const name of ['u', 'v', 'y', 'dx'])
        expect(some[name]).toEqual(all[name]!.slice(0, some[name]!.length));
    }
  });

  it.each(sizes)('give gate, up and their product the same bits: %d x %d x %d', async (...size) => {
    for (const all of [true, false])
      expect(await swiglu(devices.tiles!, size, [0, 0], all)).toEqual(
        await swiglu(verified, size, [0, 0], all),
      );
    for (const ranks of [
      [1, 1],
      [1, 0],
      [0, 1],
    ] as const)
      agree(await swiglu(devices.lora!, size, ranks, true), await swiglu(verified, size, ranks, true));
  });
});
