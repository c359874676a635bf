import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { roundAlike } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { KEY, type Numbers, product, type Storage } from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

/** T, N, K, rank of gate and of up: single elements, odd extents, whole chunks, several tiles, no pair on one side. */
const sizes = [
  [1, 1, 1, 1, 1],
  [3, 5, 7, 2, 0],
  [9, 40, 64, 8, 8],
  [16, 72, 96, 16, 24],
  [17, 70, 31, 0, 3],
  [70, 136, 80, 20, 8],
  [150, 200, 72, 8, 72],
  [40, 72, 64, 5, 13],
  [300, 72, 32, 77, 12],
] as const;
const SCALES = [0.75, 1.5] as const;
const UP_KEY = [77, 0xabcdef] as const;

type Size = readonly [number, number, number, number, number];

interface Case {
  readonly size: Size;
  readonly rows: Storage;
  readonly weights?: Storage;
  readonly packed?: boolean;
  readonly dropout?: number;
  readonly seed?: number;
}

function valuesOf({ size: [T, N, K, r, s], rows, weights = rows, seed = 1 }: Case) {
  return {
    x: stored(random(T * K, seed), rows),
    gate: {
      w: stored(random(N * K, seed + 1), weights),
      a: random(r * K, seed + 2),
      b: random(N * r, seed + 3),
    },
    up: {
      w: stored(random(N * K, seed + 4), weights),
      a: random(s * K, seed + 5),
      b: random(N * s, seed + 6),
    },
    rowIds: Int32Array.from({ length: T }, (_, t) => 100 + Math.floor(t / 5)),
    positions: Int32Array.from({ length: T }, (_, t) => t % 5),
  };
}

function upload(device: Device, from: Case) {
  const { size, rows, weights = rows, packed = false } = from;
  const [T, N, K, r, s] = size;
  const { x, gate, up, rowIds, positions } = valuesOf(from);
  const weight = (values: Float32Array) => {
    const w = device.tensor(values, [N, K], weights);
    return packed ? device.ops.pack_weight({ w, dtype: weights }).y : w;
  };
  const pair = (values: Float32Array, shape: readonly number[], rank: number) =>
    rank > 0 ? device.tensor(values, shape) : undefined;
  return {
    x: device.tensor(x, [T, K], rows),
    w_gate: weight(gate.w),
    w_up: weight(up.w),
    gate_a: pair(gate.a, [r, K], r),
    gate_b: pair(gate.b, [N, r], r),
    up_a: pair(up.a, [s, K], s),
    up_b: pair(up.b, [N, s], s),
    row_ids: device.tensor(rowIds),
    positions: device.tensor(positions),
  };
}

const scalarsOf = ({ dropout = 0 }: Case) => ({
  gate_scale: SCALES[0],
  up_scale: SCALES[1],
  dropout,
  gate_key0: KEY[0],
  gate_key1: KEY[1],
  up_key0: UP_KEY[0],
  up_key1: UP_KEY[1],
});

type Read = Record<string, Float32Array | undefined>;

async function read(outputs: Readonly<Record<string, Tensor | undefined>>): Promise<Read> {
  const values: Read = {};
  for (const [name, tensor] of Object.entries(outputs)) values[name] = await tensor?.readFloats();
  return values;
}

/** Runs the op with all outputs that a tape needs, or with y alone. */
function fused(device: Device, from: Case, all = true): Promise<Read> {
  const [, , , r, s] = from.size;
  const wanted = ['gate', 'up', ...(r > 0 ? ['gate_u'] : []), ...(s > 0 ? ['up_u'] : [])];
  return read(
    device.ops.linear_swiglu({
      ...upload(device, from),
      ...scalarsOf(from),
      ...Object.fromEntries((all ? wanted : []).map((output) => [output, true])),
    }),
  );
}

function unfused(device: Device, from: Case): Promise<Read> {
  const { x, w_gate, w_up, gate_a, gate_b, up_a, up_b, row_ids, positions } = upload(device, from);
  const { dropout = 0 } = from;
  const side = (
    w: Tensor,
    lora: { lora_a: Tensor | undefined; lora_b: Tensor | undefined },
    scale: number,
    [key0, key1]: readonly [number, number],
  ) =>
    device.ops.linear({
      x,
      w,
      ...lora,
      row_ids,
      positions,
      scale,
      dropout,
      key0,
      key1,
      ...Object.fromEntries((lora.lora_a ? ['u'] : []).map((output) => [output, true])),
    });
  const gate = side(w_gate, { lora_a: gate_a, lora_b: gate_b }, SCALES[0], KEY);
  const up = side(w_up, { lora_a: up_a, lora_b: up_b }, SCALES[1], UP_KEY);
  const { y } = device.ops.swiglu({ gate: gate.y, up: up.y });
  return read({
    y,
    gate: gate.y,
    up: up.y,
    ...(gate.u ? { gate_u: gate.u } : {}),
    ...(up.u ? { up_u: up.u } : {}),
  });
}

/** The reference without masks; each product is written to memory once. */
function expected(from: Case, p: Precision): number[] {
  const [T, N, K, r, s] = from.size;
  const { x, gate, up } = valuesOf(from);
  const of = (values: Numbers) => Array.from(values, p.store);
  const side = ({ w, a, b }: typeof gate, rank: number, scale: number) => {
    const low = product(of(product(x, of(a), T, rank, K, p)), of(b), T, N, rank, p);
    return product(x, of(w), T, N, K, p).map((value, i) =>
      p.store(p.store(value) + p.store(scale * p.store(low[i]!))),
    );
  };
  const [gates, ups] = [side(gate, r, SCALES[0]), side(up, s, SCALES[1])];
  return gates.map((g, i) => p.store(p.store(g / (1 + Math.exp(-g))) * ups[i]!));
}

describe.each(isas)('linear_swiglu on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  it.each(sizes)(
    'agrees with its definition: %d tokens, %d outputs, %d features, ranks %d and %d',
    async (...size) => {
      for (const rows of ['f32', 'bf16'] as const) {
        const from = { size, rows };
        const [truth, plain] = [expected(from, exact), expected(from, naive(rows))];
        const { y } = await fused(device, from, false);
        const largest = Math.max(...truth.map(Math.abs));
        const few = rows === 'bf16' && truth.length < 50 ? largest * 2 ** -8 : 2 ** -22;
        expect(maxDifference(y!, truth)).toBeLessThanOrEqual(2 * maxDifference(plain, truth) + few);
      }
    },
  );

  it.each([
    ['f32', 'f32', false],
    ['bf16', 'bf16', false],
    ['bf16', 'bf16', true],
    ['bf16', 'f32', false],
    ['f32', 'bf16', true],
  ] as const)(
    'has the bits of linear, linear, swiglu: %s rows, %s weights, packed: %s',
    async (rows, weights, packed) => {
      for (const size of sizes) {
        for (const dropout of [0, 0.4]) {
          const from = { size, rows, weights, packed, dropout };
          const [found, want] = [await fused(device, from), await unfused(device, from)];
          expect((await fused(device, from, false)).y).toEqual(found.y);
          // On Hopper TMA must be able to read both pairs, or linear may use wgmma for one and mma.sync for the other.
          const [, , , r, s] = size;
          if (device.info().isa !== 'sm_90' || (r % 8 === 0) === (s % 8 === 0)) {
            expect(found, `${size}, dropout ${dropout}`).toEqual(want);
            continue;
          }
          for (const [name, values] of Object.entries(want)) {
            const largest = values?.reduce((most, value) => Math.max(most, Math.abs(value)), 0) ?? 0;
            if (values)
              expect(maxDifference(found[name]!, values), name).toBeLessThanOrEqual(largest * 2 ** -7);
          }
        }
      }
    },
  );

  it('gives a row the same bits in any batch', async () => {
    for (const rows of ['f32', 'bf16'] as const) {
      const [N, K] = [136, 72];
      const { w_gate, w_up } = upload(device, { size: [1, N, K, 0, 0], rows });
      const x = random(150 * K, 9);
      const rowsOf = async (from: number, to: number) => {
        const cut = device.tensor(x.slice(from * K, to * K), [to - from, K], rows);
        return (await read(device.ops.linear_swiglu({ x: cut, w_gate, w_up }))).y!;
      };
      const all = await rowsOf(0, 150);
      for (const [from, to] of [
        [0, 1],
        [37, 45],
        [99, 150],
      ] as const)
        if (roundAlike(device, to - from, 150))
          expect(await rowsOf(from, to)).toEqual(all.slice(from * N, to * N));
    }
  });

  it('a LoRA product that overflows makes its row non-finite and changes no other row', async () => {
    const size = [40, 72, 96, 16, 8] as const;
    const [T, N, K] = size;
    const row = 21;
    const { x, gate_a, up_a, ...rest } = upload(device, { size, rows: 'bf16' });
    const values = await x.readFloats();
    const outputs = async (large: 'gate' | 'up', factor: number) => {
      const scaled = values.map((value, i) => (Math.floor(i / K) === row ? Math.abs(value) * factor : value));
      const ranks = large === 'gate' ? size[3] : size[4];
      const a = device.tensor(new Float32Array(ranks * K).fill(1e30), [ranks, K]);
      const pairs = large === 'gate' ? { gate_a: a, up_a } : { gate_a, up_a: a };
      const tensors = { ...rest, ...pairs, x: device.tensor(scaled, [T, K], 'bf16') };
      return read(
        device.ops.linear_swiglu({ ...tensors, ...scalarsOf({ size, rows: 'bf16' }), gate: true, up: true }),
      );
    };
    for (const large of ['gate', 'up'] as const) {
      const other = large === 'gate' ? 'up' : 'gate';
      const [found, finite] = [await outputs(large, 1e10), await outputs(large, 0)];
      for (const name of ['y', 'gate', 'up'] as const) {
        const [values, want] = [found[name]!, finite[name]!];
        const own = values.slice(row * N, (row + 1) * N);
        if (name !== other) expect(own.some(Number.isFinite), `${name} of a large ${large}`).toBe(false);
        // In Hopper's kernel both halves of the row become NaN.
        else if (device.info().isa !== 'sm_90') expect(own.every(Number.isFinite)).toBe(true);
        for (const t of [row - 1, row + 1, T - 1])
          expect(values.slice(t * N, (t + 1) * N)).toEqual(want.slice(t * N, (t + 1) * N));
      }
    }
  });

  it('accepts 0 tokens', async () => {
    const { y, gate } = await fused(device, { size: [0, 6, 8, 2, 2], rows: 'bf16', dropout: 0.1 });
    expect([y, gate].map((values) => values!.length)).toEqual([0, 0]);
  });

  it.skipIf(onGpu(isa))('is one launch', async () => {
    const tensors = upload(device, { size: [20, 40, 64, 4, 4], rows: 'bf16', packed: true });
    await device.synchronize();
    const before = device.stats().launches;
    device.ops.linear_swiglu({
      ...tensors,
      ...scalarsOf({ size: [20, 40, 64, 4, 4], rows: 'bf16', dropout: 0.1 }),
    });
    await device.synchronize();
    expect(device.stats().launches - before).toBe(1);
  });

  it.each([
    ['a lone gate_a', { gate_b: undefined }, {}, 'linear_swiglu: lora_a and lora_b come together'],
    ['a rate of 1', {}, { dropout: 1 }, 'linear_swiglu: dropout must be at least 0 and below 1, got 1'],
    ['a mask without positions', { positions: undefined }, { dropout: 0.5 }, 'needs row_ids and positions'],
    ['u without the pair', { up_a: undefined, up_b: undefined }, {}, 'gate_u and up_u are the LoRA pairs'],
  ] as const)('refuses %s', async (_, tensors, scalars, message) => {
    const broken = openTest(isa);
    const from = { size: [3, 4, 5, 2, 2] as const, rows: 'f32' as const };
    const call = async () => {
      const up_u = broken.empty([3, 2]);
      broken.ops.linear_swiglu({ ...upload(broken, from), ...tensors, up_u, ...scalarsOf(from), ...scalars });
      await broken.synchronize();
    };
    try {
      await expect(call()).rejects.toThrow(message);
    } finally {
      broken.dispose();
    }
  });
});
