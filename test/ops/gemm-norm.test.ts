// What stands around a product in the same op, a norm in front and a residual behind, has the bits of an op of its own.
import { afterAll, describe, expect, it } from 'vitest';
import { isas, onGpu, openTest } from './devices.js';
import type { Storage } from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';

/**
 * Outputs, features and the rank of a pair: fewer features than a step, ragged ones, more than a warp and more than a block of
 * rmsnorm takes at once, and some that a GPU cannot read eight at a time.
 */
const shapes = [
  [24, 8, 0],
  [70, 47, 0],
  [40, 328, 0],
  [136, 1096, 0],
  [9, 4360, 0],
  [72, 264, 8],
] as const;
/** One row, the edges of a GPU's kernels of few rows, and more than those take. */
const counts = [0, 1, 5, 8, 9, 16, 17, 40] as const;
const EPS = 1e-3;

type Shape = readonly [number, number, number];

describe.each(isas)('norms and residuals of products on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  const tensorsOf = (T: number, [N, K, r]: Shape, dtype: Storage, weights: Storage) => {
    const weight = (seed: number, rows: number) => {
      const w = device.tensor(random(rows * K, seed), [rows, K], weights);
      return device.ops.pack_weight({ w, dtype: weights }).y;
    };
    const pair = (seed: number, rows: number) =>
      r > 0
        ? [device.tensor(random(r * K, seed), [r, K]), device.tensor(random(rows * r, seed + 1), [rows, r])]
        : [undefined, undefined];
    return {
      x: device.tensor(
        random(T * K, 1).map((value) => 3 * value),
        [T, K],
        dtype,
      ),
      norm: device.tensor(random(K, 2), [K], weights),
      residual: device.tensor(random(T * N, 3), [T, N], dtype),
      bias: device.tensor(random(N, 4), [N], weights),
      w: [weight(5, N), weight(6, Math.ceil(N / 2)), weight(7, N)] as const,
      pairs: [pair(8, N), pair(10, Math.ceil(N / 2)), pair(12, N)] as const,
    };
  };

  const launchesOf = async <Y>(run: () => Y): Promise<[Y, number]> => {
    await device.synchronize();
    const before = device.stats().launches;
    const made = run();
    await device.synchronize();
    return [made, device.stats().launches - before];
  };

  const storages = [
    ['f32', 'f32'],
    ['bf16', 'bf16'],
    ['bf16', 'f32'],
  ] as const;

  describe.each(storages)('%s rows, %s weights', (dtype, weights) => {
    it.each(shapes)(
      'linear_qkv of normed rows: %d outputs, %d features, rank %d',
      async (...shape: Shape) => {
        for (const T of counts) {
          const { x, norm, bias, w, pairs } = tensorsOf(T, shape, dtype, weights);
          const beside = {
            ...{ w_q: w[0], w_k: w[1], w_v: w[2], q_bias: bias },
            ...{ q_a: pairs[0][0], q_b: pairs[0][1], k_a: pairs[1][0], k_b: pairs[1][1] },
            ...{ q_scale: 0.5, k_scale: 2 },
          };
          const apart = device.ops.linear_qkv({
            x: device.ops.rmsnorm({ x, weight: norm, eps: EPS }).y,
            ...beside,
          });
          const together = device.ops.linear_qkv({ x, ...beside, norm, eps: EPS });
          for (const side of ['q', 'k', 'v'] as const)
            expect(await together[side].readFloats(), `${side}, ${T} rows`).toEqual(
              await apart[side].readFloats(),
            );
        }
      },
    );

    it.each(shapes)(
      'linear_swiglu of normed rows: %d outputs, %d features, rank %d',
      async (...shape: Shape) => {
        for (const T of counts) {
          const { x, norm, w, pairs } = tensorsOf(T, shape, dtype, weights);
          const beside = {
            ...{ w_gate: w[0], w_up: w[2], gate_scale: 0.5 },
            ...{ gate_a: pairs[0][0], gate_b: pairs[0][1], gate: true, up: true },
          } as const;
          const apart = device.ops.linear_swiglu({
            x: device.ops.rmsnorm({ x, weight: norm, eps: EPS }).y,
            ...beside,
          });
          const together = device.ops.linear_swiglu({ x, ...beside, norm, eps: EPS });
          for (const output of ['y', 'gate', 'up'] as const)
            expect(await together[output]?.readFloats(), `${output}, ${T} rows`).toEqual(
              (await apart[output]?.readFloats()) ?? 'missing',
            );
        }
      },
    );

    it.each(shapes)('linear onto a residual: %d outputs, %d features, rank %d', async (...shape: Shape) => {
      for (const T of [...counts, 300]) {
        const { x, residual, bias, w, pairs } = tensorsOf(T, shape, dtype, weights);
        const beside = { x, w: w[0], bias, lora_a: pairs[0][0], lora_b: pairs[0][1], scale: 0.5 };
        const { y } = device.ops.linear(beside);
        const apart = device.ops.add({ x: y, y: residual }).z;
        const [together, launches] = await launchesOf(() => device.ops.linear({ ...beside, residual }).y);
        expect(await together.readFloats(), `${T} rows`).toEqual(await apart.readFloats());
        if (!onGpu(isa)) expect(launches).toBe(1);
      }
    });
  });

  it('leaves rows alone whose neighbours are not numbers', async () => {
    const shape = shapes[2];
    const [N, K] = shape;
    for (const T of [3, 12, 20]) {
      const { x, norm, w } = tensorsOf(T, shape, 'bf16', 'bf16');
      const run = (rows: typeof x) =>
        device.ops.linear_swiglu({ x: rows, w_gate: w[0], w_up: w[2], norm, eps: EPS }).y.readFloats();
      const values = await x.readFloats();
      values.fill(Number.NaN, K, 2 * K);
      const [clean, found] = [await run(x), await run(device.tensor(values, [T, K], 'bf16'))];
      expect(found.slice(N, 2 * N).every(Number.isNaN)).toBe(true);
      found.set(clean.subarray(N, 2 * N), N);
      expect(found).toEqual(clean);
    }
  });

  it.skipIf(!onGpu(isa))('norms up to 16 rows, of up to 56 KiB, in the launch of the product', async () => {
    for (const [T, K, r, launches] of [
      [1, 64, 0, 1],
      [16, 1024, 0, 1],
      [16, 2048, 0, 2],
      [7, 3840, 0, 1],
      [17, 64, 0, 2],
      [4, 64, 8, 3],
      [4, 63, 0, 4],
    ] as const) {
      const shape = [24, K, r] as const;
      const { x, norm, w, pairs } = tensorsOf(T, shape, 'bf16', 'bf16');
      const [a, b] = pairs[0];
      const [, taken] = await launchesOf(() =>
        device.ops.linear_swiglu({ x, w_gate: w[0], w_up: w[2], gate_a: a, gate_b: b, norm, eps: EPS }),
      );
      expect(taken, `${T} rows of ${K}, rank ${r}`).toBe(launches);
    }
  });

  it('a norm of equal elements is their sign times the weight', async () => {
    const [T, N, K] = [2, 3, 64];
    const x = device.tensor(
      Float32Array.from({ length: T * K }, (_, i) => (i < K ? 5 : -7)),
      [T, K],
      'bf16',
    );
    const identity = Float32Array.from({ length: N * K }, (_, i) => Number(i % K === Math.floor(i / K)));
    const w = device.tensor(identity, [N, K], 'bf16');
    const norm = device.tensor(
      Float32Array.from({ length: K }, (_, i) => i + 1),
      [K],
    );
    const { q } = device.ops.linear_qkv({ x, w_q: w, w_k: w, w_v: w, norm, eps: 1e-6 });
    expect(maxDifference(await q.readFloats(), [1, 2, 3, -1, -2, -3])).toBeLessThan(2 ** -7);
  });

  it('refuses a residual beside a stack', async () => {
    const own = openTest(isa);
    const packed = (shape: readonly number[]) => own.ops.pack_weight({ w: own.zeros(shape), dtype: 'f32' }).y;
    const call = async () => {
      own.ops.linear({
        ...{ x: own.zeros([3, 8]), w: own.zeros([4, 8]), residual: own.zeros([3, 4]) },
        ...{ stack_a: packed([32, 8]), stack_b: packed([4, 32]), scales: own.zeros([1]) },
        ...{ adapter: own.tensor(Int32Array.of(0, 0, 0)), ranks: own.tensor(Int32Array.of(0, 2), [1, 2]) },
      });
      await own.synchronize();
    };
    await expect(call()).rejects.toThrow('linear: pass a stack or a residual, not both');
    own.dispose();
  });
});
