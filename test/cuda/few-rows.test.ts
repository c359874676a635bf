import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { product } from '../ops/gemm-reference.js';
import { maxDifference, random } from '../ops/numbers.js';
import { exact, naive, stored } from '../ops/precision.js';
import { gpus, skipped } from './gpu.js';

/** Rows that take each kernel of cuda/gemm/few_rows.cuh, at its edges. */
const counts = [1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 129, 200];
const maxRows = counts.at(-1)!;

/** N, K, rank: one tile and a ragged one, each width; fewer steps of the depth than slices; two, four, ragged slices; more than a ring. */
const shapes = [
  [24, 8, 0],
  [136, 104, 8],
  [200, 328, 40],
  [304, 40, 0],
  [72, 392, 8],
  [40, 776, 16],
  [104, 2056, 0],
] as const;

describe.skipIf(gpus.length === 0)(`products of few rows on cuda:0${skipped}`, () => {
  let gpu: Device;
  /** Numbers of rows whose sums have one order, most last. */
  let families: readonly (readonly number[])[];
  beforeAll(() => {
    gpu = openDevice('cuda:0');
    const border = gpu.info().isa === 'sm_90' ? 16 : 0;
    families = [counts.filter((count) => count <= border), counts.filter((count) => count > border)];
  });
  afterAll(() => gpu.dispose());

  const values = ([N, K, r]: readonly [number, number, number]) => ({
    x: stored(random(maxRows * K, 1), 'bf16'),
    w: [stored(random(N * K, 2), 'bf16'), stored(random(N * K, 3), 'bf16')] as const,
    a: stored(random(r * K, 4), 'bf16'),
    b: stored(random(N * r, 5), 'bf16'),
    bias: stored(random(N, 6), 'bf16'),
  });

  /** y of rows from..to of x, by linear, or by linear_swiglu with the pair on gate alone. */
  const run = async (
    shape: readonly [number, number, number],
    op: 'linear' | 'linear_swiglu',
    from: number,
    to: number,
    x = values(shape).x,
  ) => {
    const [N, K, r] = shape;
    const { w, a, b, bias } = values(shape);
    const y = gpu.scope(() => {
      const tensor = (of: Float32Array, ...size: number[]) => gpu.tensor(of, size, 'bf16');
      const rows = tensor(x.slice(from * K, to * K), to - from, K);
      const pair = r > 0 ? { a: gpu.tensor(a, [r, K]), b: gpu.tensor(b, [N, r]) } : undefined;
      const [own, twin] = [tensor(w[0], N, K), tensor(w[1], N, K)];
      return op === 'linear'
        ? gpu.ops.linear({
            x: rows,
            w: own,
            bias: tensor(bias, N),
            lora_a: pair?.a,
            lora_b: pair?.b,
            scale: 0.5,
          }).y
        : gpu.ops.linear_swiglu({
            x: rows,
            w_gate: own,
            w_up: twin,
            gate_a: pair?.a,
            gate_b: pair?.b,
            gate_scale: 0.5,
          }).y;
    });
    const read = await y.readFloats();
    y.dispose();
    return read;
  };

  const expected = (shape: readonly [number, number, number], op: string, p: typeof exact) => {
    const [N, K, r] = shape;
    const { x, w, a, b, bias } = values(shape);
    const low = product(product(x, a, maxRows, r, K, p), b, maxRows, N, r, p);
    const own = product(x, w[0], maxRows, N, K, p).map((sum, i) =>
      p.store(sum + 0.5 * low[i]! + (op === 'linear' ? bias[i % N]! : 0)),
    );
    if (op === 'linear') return own;
    const up = product(x, w[1], maxRows, N, K, p);
    return own.map((g, i) => p.store((g / (1 + Math.exp(-g))) * p.store(up[i]!)));
  };

  describe.each(['linear', 'linear_swiglu'] as const)('%s', (op) => {
    it.each(shapes)('%d outputs, %d features, rank %d', async (...shape) => {
      const [N] = shape;
      const [want, low] = [expected(shape, op, exact), expected(shape, op, naive('bf16'))];
      const all = await run(shape, op, 0, maxRows);
      const largest = want.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
      expect(maxDifference(all, want)).toBeLessThanOrEqual(2 * maxDifference(low, want) + largest * 2 ** -8);
      // A row's bits do not depend on the batch, and so not on the kernel.
      for (const family of families) {
        const most = family.at(-1);
        if (most === undefined) continue;
        const together = most === maxRows ? all : await run(shape, op, maxRows - most, maxRows);
        expect(maxDifference(together, want.slice((maxRows - most) * N))).toBeLessThanOrEqual(
          2 * maxDifference(low, want) + largest * 2 ** -8,
        );
        for (const count of family)
          expect(await run(shape, op, maxRows - count, maxRows), `${count} rows`).toEqual(
            together.slice((most - count) * N),
          );
      }
    });

    it('leaves rows alone whose neighbours are not numbers', async () => {
      const shape = [72, 264, 8] as const;
      const [N, K] = shape;
      for (const count of [6, 16, 30, 70, 130]) {
        const { x } = values(shape);
        const clean = await run(shape, op, 0, count, x);
        const broken = count - 2;
        x.fill(Number.NaN, broken * K, (broken + 1) * K);
        const found = await run(shape, op, 0, count, x);
        expect(found.slice(0, broken * N)).toEqual(clean.slice(0, broken * N));
        expect(found.slice((broken + 1) * N)).toEqual(clean.slice((broken + 1) * N));
        expect(found.slice(broken * N, (broken + 1) * N).every(Number.isNaN)).toBe(true);
      }
    });
  });

  it('gives an f32 output the same bits from every kernel, and takes no rows, no outputs and no features', async () => {
    const [N, K] = [136, 296];
    const [x, w] = [stored(random(maxRows * K, 1), 'bf16'), stored(random(N * K, 2), 'bf16')];
    const weights = gpu.tensor(w, [N, K], 'bf16');
    const of = (rows: number) =>
      gpu.ops
        .head_logits({
          x: gpu.tensor(x.slice(0, rows * K), [rows, K], 'bf16'),
          w: weights,
          temperature: 0.5,
        })
        .logits.readFloats();
    const all = await of(maxRows);
    const want = product(x, w, maxRows, N, K, exact).map((value) => 2 * value);
    expect(maxDifference(all, want)).toBeLessThan(1e-3);
    for (const family of families) {
      const together = family.length > 0 ? await of(family.at(-1)!) : [];
      for (const count of family)
        expect(await of(count), `${count} rows`).toEqual(together.slice(0, count * N));
    }
    expect(await of(0)).toHaveLength(0);
    const linear = (rows: number, outputs: number, features: number) =>
      gpu.ops
        .linear({
          x: gpu.empty([rows, features], 'bf16'),
          w: gpu.empty([outputs, features], 'bf16'),
          scale: 1,
        })
        .y.readFloats();
    expect(await linear(4, 0, 8)).toHaveLength(0);
    for (const rows of [3, 40]) expect(await linear(rows, 5, 0)).toEqual(new Float32Array(rows * 5));
  });

  it('gives the bits of larger products where the depth is one slice', async () => {
    if (gpu.info().isa !== 'sm_90') return;
    const [N, K, rows] = [72, 328, 300];
    const x = random(rows * K, 1);
    const w = gpu.tensor(random(N * K, 2), [N, K], 'bf16');
    const pair = {
      lora_a: gpu.tensor(random(8 * K, 3), [8, K]),
      lora_b: gpu.tensor(random(N * 8, 4), [N, 8]),
    };
    const of = (count: number) =>
      gpu.ops
        .linear({ x: gpu.tensor(x.slice(0, count * K), [count, K], 'bf16'), w, ...pair, scale: 0.5 })
        .y.readFloats();
    const all = await of(rows);
    for (const count of [17, 33, 130, 256])
      expect(await of(count), `${count} rows`).toEqual(all.slice(0, count * N));
  });

  it('takes one launch, and one more where wgmma cuts the depth', async () => {
    const cuts = gpu.info().isa === 'sm_90';
    for (const [K, more] of [
      [64, 0],
      [384, cuts ? 1 : 0],
    ] as const) {
      const w = gpu.tensor(random(40 * K), [40, K], 'bf16');
      for (const rows of [1, 12, 20, 60, 256]) {
        const x = gpu.tensor(random(rows * K), [rows, K], 'bf16');
        await gpu.synchronize();
        const before = gpu.stats().launches;
        gpu.ops.linear({ x, w, scale: 1 });
        await gpu.synchronize();
        expect(gpu.stats().launches - before, `${rows} rows of ${K}`).toBe(rows > 16 ? 1 + more : 1);
      }
    }
  });
});
