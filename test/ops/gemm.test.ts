import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { gradientsRoundAlike, roundAlike } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import {
  dwBound,
  KEY,
  mask,
  type Numbers,
  type Problem,
  product,
  reference,
  type Storage,
  tolerance,
  transposed,
} from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored, tensorCores } from './precision.js';

/** T, N, K, r: single elements, odd extents, more rows than one tile, more outputs than one panel, wide ranks. */
const sizes = [
  [1, 1, 1, 1],
  [3, 5, 7, 2],
  [8, 33, 64, 8],
  [17, 70, 31, 16],
  [30, 128, 96, 20],
  [37, 65, 130, 40],
] as const;

function problemOf(
  [T, N, K, r]: readonly [number, number, number, number],
  rows: Storage,
  weights: Storage,
  dropout = 0,
): Problem {
  return {
    T,
    N,
    K,
    r,
    x: stored(random(T * K, 1), rows),
    w: stored(random(N * K, 2), weights),
    bias: stored(random(N, 3), weights),
    a: random(r * K, 4),
    b: random(N * r, 5),
    dy: stored(random(T * N, 6), rows),
    scale: 0.75,
    dropout,
    rowIds: Int32Array.from({ length: T }, (_, t) => 100 + Math.floor(t / 5)),
    positions: Int32Array.from({ length: T }, (_, t) => t % 5),
  };
}

type Expected = { problem: Problem; want: Results; low: Results };
type Results = ReturnType<typeof reference>;
const expected = new Map<string, Expected>();

/** A problem and its results, exact and by a naive program, computed once for all devices. */
function expectedOf(
  size: readonly [number, number, number, number],
  { rows, weights, dropout }: { rows: Storage; weights: Storage; dropout: number },
  plain: Precision,
): Expected {
  const name = [...size, rows, weights, dropout, plain === tensorCores].join();
  const known = expected.get(name);
  if (known) return known;
  const problem = problemOf(size, rows, weights, dropout);
  const made = { problem, want: reference(problem, exact), low: reference(problem, plain) };
  expected.set(name, made);
  return made;
}

const scalarsOf = ({ scale, dropout }: Problem) => ({ scale, dropout, key0: KEY[0], key1: KEY[1] });

/** The problem's tensors, with `lora` false without the pair and its mask. */
function upload(device: Device, problem: Problem, rows: Storage, weights: Storage, packed: boolean) {
  const { T, N, K, r } = problem;
  const float = (values: Numbers, shape: readonly number[], dtype: Storage) =>
    device.tensor(Float32Array.from(values), shape, dtype);
  const w = float(problem.w, [N, K], weights);
  return {
    x: float(problem.x, [T, K], rows),
    w: packed ? device.ops.pack_weight({ w, dtype: weights }).y : w,
    bias: problem.bias && float(problem.bias, [N], weights),
    dy: float(problem.dy, [T, N], rows),
    lora_a: float(problem.a, [r, K], 'f32'),
    lora_b: float(problem.b, [N, r], 'f32'),
    row_ids: device.tensor(Int32Array.from(problem.rowIds)),
    positions: device.tensor(Int32Array.from(problem.positions)),
  };
}

const floats = (tensor: Tensor) => tensor.readFloats();

/** Every op of the family on one problem. Gradients are added to those of `held`. */
async function run(device: Device, problem: Problem, rows: Storage, weights: Storage, packed: boolean) {
  const { N, K, r } = problem;
  const { x, w, bias, dy, ...lora } = upload(device, problem, rows, weights, packed);
  const scalars = scalarsOf(problem);
  const { y, u } = device.ops.linear({ x, w, bias, ...lora, ...scalars, u: true });
  const [da, db, dw, dbias] = [
    device.zeros([r, K]),
    device.zeros([N, r]),
    device.zeros([N, K]),
    device.zeros([N]),
  ];
  const given = { dy, w, ...lora, x, u, da, db, ...scalars };
  const { dx, v } = device.ops.linear_dx({ ...given, accumulate: false, v: true });
  device.ops.linear_dw({ x, dy, dw, db: dbias });
  const read: Record<string, Float32Array> = {};
  for (const [name, tensor] of Object.entries({ y, u, dx, v, da, db, dw, dbias }))
    read[name] = await floats(tensor);
  return read;
}

it('has a reference of tensor cores that cut off what they do not keep', () => {
  const { depth, add } = tensorCores.step!;
  const products = (...values: number[]) => Float64Array.from({ length: depth }, (_, i) => values[i] ?? 0);
  const step = 2 ** -23;
  // Three quarters of a unit of the last place: cut off, of either sign.
  expect(add(0, products(1, 0.75 * step))).toBe(1);
  expect(add(0, products(-1, -0.75 * step))).toBe(-1);
  // Two bits are kept while a step is summed, a third is not.
  expect(add(0, products(1, 0.5 * step, 0.5 * step))).toBe(1 + step);
  expect(add(0, products(1, 0.25 * step, 0.75 * step))).toBe(1 + step);
  expect(add(0, products(1, ...Array<number>(8).fill(0.125 * step)))).toBe(1);
  expect(add(1, products(1, -2))).toBe(0);
});

it('has a reference of tensor cores that errs as an H100 did, of dw of 400 tokens', () => {
  const [T, N, K] = [400, 264, 40];
  const { x, dy } = problemOf([T, N, K, 1], 'bf16', 'bf16');
  const dw = (p: Precision) => product(transposed(dy, T, N), transposed(x, T, K), N, K, T, p);
  expect(maxDifference(dw(tensorCores), dw(exact))).toBe(1.6257166862487793e-5);
});

it('has a reference whose gradients are those of finite differences', () => {
  const problem = { ...problemOf([3, 4, 6, 2], 'f32', 'f32', 0.3), T: 3 };
  const got = reference(problem, exact);
  const loss = (changed: Problem) =>
    reference(changed, exact).y.reduce((total, y, i) => total + y * problem.dy[i]!, 0);
  for (const [name, gradient] of [
    ['x', got.dx],
    ['w', got.dw],
    ['bias', got.dbias],
    ['a', got.da],
    ['b', got.db],
  ] as const) {
    const slopes = Array.from(problem[name]!, (_, i) => {
      const [up, down] = [0.01, -0.01].map((step) => {
        const values = Array.from(problem[name]!);
        values[i]! += step;
        return loss({ ...problem, [name]: values });
      });
      return (up! - down!) / 0.02;
    });
    expect(maxDifference(gradient, slopes)).toBeLessThan(1e-9);
  }
});

describe.each(isas)('gemm on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  describe.each([
    ['f32', 'f32', true],
    ['bf16', 'bf16', true],
    ['f32', 'f32', false],
    ['bf16', 'bf16', false],
    ['bf16', 'f32', false],
    ['bf16', 'f32', true],
    ['f32', 'bf16', false],
    ['f32', 'bf16', true],
  ] as const)('%s rows, %s weights, packed: %s', (rows, weights, packed) => {
    it.each(sizes)('%d rows, %d outputs, %d features, rank %d', async (...size) => {
      for (const dropout of [0, 0.4]) {
        const plain = onGpu(isa) && rows === 'bf16' ? tensorCores : naive(rows);
        const { problem, want, low } = expectedOf(size, { rows, weights, dropout }, plain);
        const got = await run(device, problem, rows, weights, packed);
        for (const name of Object.keys(want) as (keyof typeof want)[]) {
          const bound =
            name === 'dw' && plain === tensorCores
              ? dwBound(problem)
              : tolerance(low[name], want[name], rows);
          expect(maxDifference(got[name]!, want[name]), name).toBeLessThanOrEqual(bound);
        }
      }
    });
  });

  it('works without bias, LoRA or mask, and adds to dx with accumulate', async () => {
    // Of 2,500 outputs a panel of dx is summed in parts.
    for (const [dtype, N] of [
      ['f32', 40],
      ['bf16', 40],
      ['f32', 2500],
      ['bf16', 2500],
    ] as const) {
      const problem = { ...problemOf([9, N, 50, 1], dtype, dtype), bias: undefined, scale: 0 };
      const { x, w, dy } = upload(device, problem, dtype, dtype, true);
      const want = reference(problem, exact);
      const low = reference(problem, naive(dtype));
      const { y } = device.ops.linear({ x, w });
      expect(maxDifference(await floats(y), want.y)).toBeLessThanOrEqual(tolerance(low.y, want.y, dtype));
      const held = stored(random(9 * 50, 8), dtype);
      const dx = device.tensor(held, [9, 50], dtype);
      device.ops.linear_dx({ dy, w, dx, accumulate: true });
      const total = want.dx.map((value, i) => value + held[i]!);
      expect(maxDifference(await floats(dx), total)).toBeLessThanOrEqual(
        2 * tolerance(low.dx, want.dx, dtype),
      );
    }
  });

  it('adds to the given gradients, over many tokens', async () => {
    const size = [1100, 33, 20, 17] as const;
    const problem = problemOf(size, 'f32', 'f32', 0.1);
    const { x, w, dy, bias: _, ...lora } = upload(device, problem, 'f32', 'f32', false);
    const want = reference(problem, exact);
    const low = reference(problem, naive('f32'));
    const shapes = { da: [17, 20], db: [33, 17], dw: [33, 20], dbias: [33] } as const;
    const held = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => {
        const values = random(
          shape.reduce((a: number, b) => a * b, 1),
          9,
        );
        return [name, { values, tensor: device.tensor(values, shape) }];
      }),
    );
    const u = device.tensor(Float32Array.from(want.u), [1100, 17]);
    const { da, db, dw, dbias } = held;
    const tensors = { x, u, da: da!.tensor, db: db!.tensor };
    device.ops.linear_dx({ dy, w, ...lora, ...tensors, ...scalarsOf(problem) });
    device.ops.linear_dw({ x, dy, dw: dw!.tensor, db: dbias!.tensor });
    for (const name of Object.keys(shapes) as (keyof typeof shapes)[]) {
      const total = want[name].map((value, i) => value + held[name]!.values[i]!);
      const bound = tolerance(low[name], want[name], 'f32');
      expect(maxDifference(await floats(held[name]!.tensor), total), name).toBeLessThanOrEqual(bound);
    }
    // Each gradient alone.
    const only = device.zeros([33]);
    device.ops.linear_dw({ x, dy, db: only });
    expect(maxDifference(await floats(only), want.dbias)).toBeLessThanOrEqual(
      tolerance(low.dbias, want.dbias, 'f32'),
    );
  });

  it.each([
    ['f32', 77, 70],
    ['bf16', 77, 70],
    ['f32', 1024, 70],
    ['f32', 1024, 70, 123],
    ['bf16', 2048, 70],
    ['bf16', 2048, 70, 123],
    ['f32', 77, 2500],
    ['bf16', 77, 2501],
    ['f32', 70, 1024, 123],
    ['bf16', 70, 2048, 123],
  ] as const)(
    'gives a %s row of %d features and %d outputs the same bits in any batch and at any thread count',
    async (dtype, K, N, T: number = 45) => {
      const problem = problemOf([T, N, K, 6], dtype, dtype, 0.2);
      const rowsOf = async (on: Device, from: number, to: number) => {
        const cut = (values: Numbers, width: number) =>
          Array.prototype.slice.call(values, from * width, to * width);
        const part: Problem = {
          ...problem,
          T: to - from,
          x: cut(problem.x, K),
          dy: cut(problem.dy, N),
          rowIds: cut(problem.rowIds, 1),
          positions: cut(problem.positions, 1),
        };
        const { y, u, dx, v } = await run(on, part, dtype, dtype, true);
        return { y: y!, u: u!, dx: dx!, v: v! };
      };
      const whole = await rowsOf(device, 0, T);
      for (const [on, from, to] of [
        [single, 0, T],
        [device, 0, 1],
        [device, 44, 45],
        [device, 3, 9],
        [device, 7, 23],
        [single, 11, 42],
      ] as const) {
        if (!gradientsRoundAlike(on, to - from, T)) continue;
        const part = await rowsOf(on, from, to);
        for (const [name, width] of [
          ['y', N],
          ['u', 6],
          ['dx', K],
          ['v', 6],
        ] as const) {
          if (name === 'y' && !roundAlike(on, to - from, T)) continue;
          expect(part[name], `${name} ${from}..${to}`).toEqual(whole[name].slice(from * width, to * width));
        }
      }
    },
  );

  it.each([
    ['f32', 300],
    ['bf16', 600],
  ] as const)(
    'gives a %s row of %d features the same bits beside 255 others, by a weight of 70 outputs',
    async (dtype, K) => {
      const [T, N] = [256, 70];
      const [x, w, bias, residual] = [T * K, N * K, N, T * N].map((size, i) =>
        stored(random(size, 11 + i), dtype),
      );
      const rows = async (on: Device, from: number, to: number) => {
        const given = (values: Numbers | undefined, shape: readonly number[]) =>
          on.tensor(Float32Array.from(values as Numbers), shape, dtype);
        const cut = (values: Numbers | undefined, width: number) =>
          given(Array.prototype.slice.call(values, from * width, to * width), [to - from, width]);
        const { y } = on.ops.linear({
          x: cut(x, K),
          w: on.ops.pack_weight({ w: given(w, [N, K]), dtype }).y,
          bias: given(bias, [N]),
          residual: cut(residual, N),
        });
        return floats(y);
      };
      const whole = await rows(single, 0, T);
      expect(await rows(device, 0, T)).toEqual(whole);
      for (const [from, to] of [
        [0, 1],
        [13, 15],
        [100, 130],
        [255, 256],
      ] as const) {
        if (!roundAlike(device, to - from, T)) continue;
        expect(await rows(device, from, to)).toEqual(whole.slice(from * N, to * N));
      }
    },
  );

  it.each([
    [20, 5],
    [50, 12],
    [50, 60],
  ] as const)(
    '%d tokens: rank %d has the bits of its pair with zeros up to the next multiple of 8',
    async (T, r) => {
      const [N, K, whole] = [40, 64, Math.ceil(r / 8) * 8];
      const problem = problemOf([T, N, K, r], 'bf16', 'bf16', 0.2);
      const widened = (rows: Numbers) =>
        Float32Array.from({ length: N * whole }, (_, i) =>
          i % whole < r ? rows[Math.floor(i / whole) * r + (i % whole)]! : 0,
        );
      const a = new Float32Array(whole * K);
      a.set(problem.a as Float32Array);
      const filled = { ...problem, r: whole, a, b: widened(problem.b) };
      const [got, want] = [
        await run(device, problem, 'bf16', 'bf16', true),
        await run(device, filled, 'bf16', 'bf16', true),
      ];
      const narrowed = (rows: Float32Array) => rows.filter((_, i) => i % whole < r);
      for (const name of ['y', 'dx', 'dw', 'dbias']) expect(got[name], name).toEqual(want[name]);
      for (const name of ['u', 'v', 'db']) expect(got[name], name).toEqual(narrowed(want[name]!));
      expect(got.da, 'da').toEqual(want.da!.slice(0, r * K));
    },
  );

  // The former is stored from registers, the latter by way of memory.
  it.skipIf(onGpu(isa))('gives an output the same bits in a whole panel and in one of fewer', async () => {
    const [T, wide, narrow, r] = [33, 96, 43, 4];
    const cut = (values: Numbers, width = wide, to = narrow) =>
      Float32Array.from(
        { length: (values.length / width) * to },
        (_, i) => values[Math.floor(i / to) * width + (i % to)]!,
      );
    const first = (values: Numbers, count: number) => Float32Array.from(values).subarray(0, count);
    const alike = (got: Float32Array, whole: Float32Array) => expect(got).toEqual(cut(whole));
    for (const dtype of ['f32', 'bf16'] as const) {
      const held = stored(random(T * wide, 8), dtype);
      for (const [pair, dropout] of [
        [false, 0],
        [true, 0],
        [true, 0.3],
      ] as const) {
        const product = async (outputs: number, features: number, given: boolean) => {
          const problem = problemOf([T, wide, wide, r], dtype, dtype, dropout);
          const { N, K } = { N: outputs, K: features };
          const part: Problem = {
            ...problem,
            N,
            K,
            x: cut(problem.x, wide, K),
            w: cut(first(problem.w, N * wide), wide, K),
            bias: first(problem.bias!, N),
            a: cut(problem.a, wide, K),
            b: first(problem.b, N * r),
            dy: cut(problem.dy, wide, N),
          };
          const { x, w, bias, dy, lora_a, lora_b, row_ids, positions } = upload(
            device,
            part,
            dtype,
            dtype,
            true,
          );
          const lora = pair ? { lora_a, lora_b, row_ids, positions, ...scalarsOf(part) } : {};
          const residual = device.tensor(cut(held, wide, N), [T, N], dtype);
          const dx = device.tensor(cut(held, wide, K), [T, K], dtype);
          const { y } = device.ops.linear({ x, w, ...lora, ...(given ? { bias, residual } : {}) });
          device.ops.linear_dx({ dy, w, ...lora, dx, accumulate: given });
          return { y: await floats(y), dx: await floats(dx) };
        };
        for (const given of [false, true]) {
          const whole = await product(wide, wide, given);
          alike((await product(narrow, wide, given)).y, whole.y);
          alike((await product(wide, narrow, given)).dx, whole.dx);
        }
      }
    }
  });

  it('gives packed and row-major weights the same bits', async () => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const problem = problemOf([19, 75, 45, 5], dtype, dtype, 0.1);
      expect(await run(device, problem, dtype, dtype, true)).toEqual(
        await run(device, problem, dtype, dtype, false),
      );
    }
  });

  it('gives gradients the same bits at any thread count', async () => {
    const problem = problemOf([1300, 40, 35, 4], 'bf16', 'bf16', 0.1);
    expect(await run(single, problem, 'bf16', 'bf16', true)).toEqual(
      await run(device, problem, 'bf16', 'bf16', true),
    );
  });

  it('packs and unpacks every element, in either dtype', async () => {
    for (const [N, K] of [
      [1, 1],
      [31, 33],
      [65, 50],
      [96, 128],
    ] as const) {
      const values = random(N * K, 3);
      for (const from of ['f32', 'bf16'] as const) {
        for (const to of ['f32', 'bf16'] as const) {
          for (const back of ['f32', 'bf16'] as const) {
            const w = device.tensor(values, [N, K], from);
            const packed = device.ops.pack_weight({ w, dtype: to }).y;
            const { y } = device.ops.unpack_weight({ w: packed, dtype: back });
            expect(await floats(y)).toEqual(stored(stored(stored(values, from), to), back));
          }
          const plain = device.ops.unpack_weight({ w: device.tensor(values, [N, K], from), dtype: to });
          expect(await floats(plain.y)).toEqual(stored(stored(values, from), to));
        }
      }
    }
  });

  it('keeps a NaN within its own row and column', async () => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const problem = problemOf([20, 35, 9, 3], dtype, dtype);
      const x = Float32Array.from(problem.x);
      x[5 * 9] = Number.NaN; // the element after row 4's last, which shares a pair with nothing
      const { y } = await run(device, { ...problem, x }, dtype, dtype, true);
      const rows = Array.from({ length: 20 }, (_, t) => y!.slice(t * 35, t * 35 + 35).some(Number.isNaN));
      expect(rows.flatMap((bad, t) => (bad ? [t] : []))).toEqual([5]);
    }
  });

  it('masks each token by its row and position, at the given rate', async () => {
    const problem = { ...problemOf([40, 1, 256, 1], 'f32', 'f32', 0.25), b: [0] };
    const kept = mask(problem).filter((factor) => factor > 0).length / (40 * 256);
    expect(kept).toBeGreaterThan(0.73);
    expect(kept).toBeLessThan(0.77);
    const ones = { ...problem, x: new Float32Array(40 * 256).fill(1), a: new Float32Array(256).fill(1) };
    const { u } = await run(device, ones, 'f32', 'f32', true);
    const want = reference(ones, exact).u;
    expect(maxDifference(u!, want)).toBeLessThan(1e-3);
  });

  it.skipIf(onGpu(isa))('counts one launch for each op', async () => {
    const problem = problemOf([20, 40, 64, 4], 'bf16', 'bf16', 0.1);
    const { x, w, bias, dy, ...lora } = upload(device, problem, 'bf16', 'bf16', true);
    const scalars = scalarsOf(problem);
    await device.synchronize();
    const before = device.stats().launches;
    const { u } = device.ops.linear({ x, w, bias, ...lora, ...scalars, u: true });
    const [da, db] = [device.tensor(problem.a as Float32Array, [4, 64]), device.tensor(random(160), [40, 4])];
    const dw = device.tensor(problem.w as Float32Array, [40, 64]);
    device.ops.linear_dx({ dy, w, ...lora, x, u, da, db, ...scalars });
    device.ops.linear_dw({ x, dy, dw });
    await device.synchronize();
    expect(device.stats().launches - before).toBe(4);
  });

  it('accepts 0 tokens', async () => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const problem = problemOf([0, 6, 10, 2], dtype, dtype, 0.1);
      const got = await run(device, problem, dtype, dtype, true);
      const sizes = Object.fromEntries(Object.entries(got).map(([name, values]) => [name, values.length]));
      expect(sizes).toEqual({ y: 0, u: 0, dx: 0, v: 0, da: 20, db: 12, dw: 60, dbias: 6 });
      for (const values of Object.values(got)) expect(values.every((value) => value === 0)).toBe(true);
    }
  });

  it('adds the same gradients of a pair whether v is asked for or not', async () => {
    for (const dtype of ['f32', 'bf16'] as const) {
      const problem = problemOf([70, 40, 24, 8], dtype, dtype, 0.3);
      const { x, w, dy, bias: _, ...lora } = upload(device, problem, dtype, dtype, true);
      const u = device.tensor(random(70 * 8, 9), [70, 8]);
      const added = async (v: boolean) => {
        const [da, db] = [device.zeros([8, 24]), device.zeros([40, 8])];
        device.ops.linear_dx({ dy, w, ...lora, x, u, da, db, ...scalarsOf(problem), v: v || undefined });
        return [await floats(da), await floats(db)];
      };
      expect(await added(false)).toEqual(await added(true));
    }
  });

  it('refuses the gradients of a pair without all that they need', async () => {
    const broken = openTest(isa);
    try {
      const problem = problemOf([3, 4, 5, 2], 'f32', 'f32');
      const { x, w, dy, lora_a, lora_b } = upload(broken, problem, 'f32', 'f32', true);
      const gradients = { x, u: broken.zeros([3, 2]), da: broken.zeros([2, 5]) };
      const call = async () => {
        broken.ops.linear_dx({ dy, w, lora_a, lora_b, ...gradients });
        await broken.synchronize();
      };
      await expect(call()).rejects.toThrow(
        'linear_dx: x, u, da and db come together, with lora_a and lora_b',
      );
    } finally {
      broken.dispose();
    }
  });

  it.each([
    [
      'a lone lora_a',
      { lora_b: undefined },
      {},
      'linear: lora_a and lora_b come together; only lora_a was given',
    ],
    ['a rate of 1', {}, { dropout: 1 }, 'linear: dropout must be at least 0 and below 1, got 1'],
    ['a rate that is no number', {}, { dropout: Number.NaN }, 'must be at least 0 and below 1, got nan'],
    ['a mask without positions', { positions: undefined }, { dropout: 0.5 }, 'needs row_ids and positions'],
    ['u without the pair', { lora_a: undefined, lora_b: undefined }, {}, 'linear: u is the LoRA pair'],
  ] as const)('refuses %s', async (_, tensors, scalars, message) => {
    const broken = openTest(isa);
    try {
      const { dy: __, ...all } = upload(broken, problemOf([3, 4, 5, 2], 'f32', 'f32'), 'f32', 'f32', true);
      const u = broken.empty([3, 2]);
      const call = async () => {
        broken.ops.linear({ ...all, ...tensors, u, scale: 1, dropout: 0, key0: 1, key1: 2, ...scalars });
        await broken.synchronize();
      };
      await expect(call()).rejects.toThrow(message);
    } finally {
      broken.dispose();
    }
  });
});
