import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { call, isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Numbers = ArrayLike<number>;
type Kind = 'rmsnorm' | 'layernorm';
type Storage = 'f32' | 'bf16';
const EPS = 1e-5;
/** Two f32 steps of values near 1, since a naive program may be exact by luck on few rows. */
const FEW = 2 ** -22;

interface Inputs {
  readonly rows: number;
  readonly size: number;
  readonly x: Numbers;
  readonly residual?: Numbers | undefined;
  readonly weight: Numbers;
  readonly bias?: Numbers | undefined;
}

interface Forward {
  readonly y: number[];
  readonly sum: number[];
  readonly mean: number[];
  readonly rstd: number[];
}

function forward(kind: Kind, { rows, size, x, residual, weight, bias }: Inputs, p: Precision): Forward {
  const sum = Array.from(x, (value, i) => p.store(value + (residual?.[i] ?? 0)));
  const [y, mean, rstd]: number[][] = [[], [], []];
  for (let t = 0; t < rows; t++) {
    const row = sum.slice(t * size, (t + 1) * size);
    const center = kind === 'layernorm' ? p.sum(row.reduce((a, b) => p.sum(a + b), 0) / size) : 0;
    const variance = row.reduce((a, b) => p.sum(a + p.sum((b - center) ** 2)), 0) / size;
    const scale = p.sum(1 / Math.sqrt(variance + EPS));
    mean!.push(center);
    rstd!.push(scale);
    row.forEach((value, h) => {
      const scaled = p.store(p.store(p.store(value - center) * scale) * weight[h]!);
      y!.push(bias ? p.store(scaled + bias[h]!) : scaled);
    });
  }
  return { y: y!, sum, mean: mean!, rstd: rstd! };
}

interface Backward {
  readonly dx: number[];
  readonly dweight: number[];
  readonly dbias: number[];
}

function backward(
  kind: Kind,
  inputs: Inputs,
  f: Forward,
  dy: Numbers,
  dsum: Numbers | undefined,
  p: Precision,
) {
  const { rows, size, weight } = inputs;
  const result: Backward = {
    dx: [],
    dweight: new Array<number>(size).fill(0),
    dbias: new Array<number>(size).fill(0),
  };
  for (let t = 0; t < rows; t++) {
    let [meanG, meanGx] = [0, 0];
    const normal: number[] = [];
    const g: number[] = [];
    for (let h = 0; h < size; h++) {
      const at = t * size + h;
      normal.push(p.store((f.sum[at]! - f.mean[t]!) * f.rstd[t]!));
      g.push(p.store(dy[at]! * weight[h]!));
      meanG = p.sum(meanG + g[h]! / size);
      meanGx = p.sum(meanGx + p.sum(g[h]! * normal[h]!) / size);
      result.dweight[h] = p.sum(result.dweight[h]! + p.sum(dy[at]! * normal[h]!));
      result.dbias[h] = p.sum(result.dbias[h]! + dy[at]!);
    }
    if (kind === 'rmsnorm') meanG = 0;
    for (let h = 0; h < size; h++) {
      const inner = p.store(p.store(g[h]! - meanG) - p.store(normal[h]! * meanGx));
      result.dx.push(p.store(p.store(inner * f.rstd[t]!) + (dsum?.[t * size + h] ?? 0)));
    }
  }
  return result;
}

function inputsOf(rows: number, size: number, dtype: Storage, weights: Storage, extra: boolean): Inputs {
  return {
    rows,
    size,
    x: stored(random(rows * size, 1), dtype),
    residual: extra ? stored(random(rows * size, 2), dtype) : undefined,
    weight: stored(random(size, 3), weights),
    bias: extra ? stored(random(size, 4), weights) : undefined,
  };
}

function upload(device: Device, kind: Kind, inputs: Inputs, dtype: Storage, weights: Storage) {
  const shape = [inputs.rows, inputs.size];
  const float = (values: Numbers | undefined, of: readonly number[], type: Storage) =>
    values && device.tensor(Float32Array.from(values), of, type);
  return {
    x: float(inputs.x, shape, dtype),
    residual: float(inputs.residual, shape, dtype),
    weight: float(inputs.weight, [inputs.size], weights),
    ...(kind === 'layernorm' && { bias: float(inputs.bias, [inputs.size], weights) }),
  };
}

const floats = (tensor: Tensor | undefined) => tensor!.readFloats();
const kinds = ['rmsnorm', 'layernorm'] as const;
const sizes = [
  [1, 1],
  [3, 7],
  [5, 64],
  [9, 100],
  [70, 31],
  [66, 600],
] as const;

it.each(kinds)('the reference gradient of %s is that of finite differences', (kind) => {
  const inputs = inputsOf(3, 11, 'f32', 'f32', true);
  const extra = kind === 'layernorm' ? inputs : { ...inputs, bias: undefined };
  const [dy, dsum] = [random(33, 5), random(33, 6)];
  const got = backward(kind, extra, forward(kind, extra, exact), dy, dsum, exact);
  const loss = (changed: Inputs) => {
    const f = forward(kind, changed, exact);
    return f.y.reduce((total, y, i) => total + y * dy[i]! + f.sum[i]! * dsum[i]!, 0);
  };
  const slope = (name: 'x' | 'weight' | 'bias', i: number) => {
    const [up, down] = [1e-5, -1e-5].map((step) => {
      const values = Array.from(extra[name]!);
      values[i]! += step;
      return loss({ ...extra, [name]: values });
    });
    return (up! - down!) / 2e-5;
  };
  expect(
    maxDifference(
      got.dx,
      Array.from(inputs.x, (_, i) => slope('x', i)),
    ),
  ).toBeLessThan(1e-7);
  expect(
    maxDifference(
      got.dweight,
      Array.from(inputs.weight, (_, i) => slope('weight', i)),
    ),
  ).toBeLessThan(1e-7);
  if (kind === 'layernorm')
    expect(
      maxDifference(
        got.dbias,
        Array.from(inputs.weight, (_, i) => slope('bias', i)),
      ),
    ).toBeLessThan(1e-7);
});

describe.each(isas)('norm on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(kinds)('%s', (kind) => {
    const statistics = kind === 'layernorm' ? (['mean', 'rstd'] as const) : (['rstd'] as const);

    describe.each([
      ['f32', 'f32'],
      ['bf16', 'bf16'],
      ['bf16', 'f32'],
    ] as const)('%s rows, %s weights', (dtype, weights) => {
      it.each(sizes)('%d rows of %d, with and without residual and bias', async (rows, size) => {
        for (const extra of [true, false]) {
          const all = inputsOf(rows, size, dtype, weights, extra);
          const inputs = kind === 'layernorm' ? all : { ...all, bias: undefined };
          const got = call(device, kind, {
            ...upload(device, kind, inputs, dtype, weights),
            eps: EPS,
            sum: true,
          });
          const sum = await floats(got.sum);
          // The norm reads the rounded sum, which is exact here.
          const rounded = { ...inputs, x: sum, residual: undefined };
          const want = forward(kind, rounded, exact);
          const low = forward(kind, rounded, naive(dtype));
          expect(sum).toEqual(Float32Array.from(forward(kind, inputs, naive(dtype)).sum));
          const tolerance = 2 * maxDifference(low.y, want.y) + FEW;
          expect(maxDifference(await floats(got.y), want.y)).toBeLessThanOrEqual(tolerance);
          for (const name of statistics) {
            const scale = Math.max(...want[name].map(Math.abs));
            expect(maxDifference(await floats(got[name]), want[name])).toBeLessThanOrEqual(
              1e-6 * scale + 1e-7,
            );
          }
          const quiet = call(device, kind, { ...upload(device, kind, inputs, dtype, weights), eps: EPS });
          expect(await floats(quiet.y)).toEqual(await floats(got.y));
        }
      });

      it.each(sizes)('backward of %d rows of %d', async (rows, size) => {
        for (const extra of [true, false]) {
          const inputs = inputsOf(rows, size, dtype, weights, false);
          const f = forward(kind, inputs, exact);
          const dy = stored(random(rows * size, 7), dtype);
          const dsum = extra ? stored(random(rows * size, 8), dtype) : undefined;
          const held = random(size, 9);
          const f32 = { mean: f.mean.map(Math.fround), rstd: f.rstd.map(Math.fround), sum: f.sum, y: f.y };
          const want = backward(kind, inputs, f32, dy, dsum, exact);
          const low = backward(kind, inputs, f32, dy, dsum, naive(dtype));
          const shape = [rows, size];
          const got = call(device, `${kind}_backward`, {
            dy: device.tensor(dy, shape, dtype),
            sum: device.tensor(Float32Array.from(inputs.x), shape, dtype),
            weight: device.tensor(Float32Array.from(inputs.weight), [size], weights),
            rstd: device.tensor(Float32Array.from(f.rstd)),
            ...(kind === 'layernorm' && { mean: device.tensor(Float32Array.from(f.mean)) }),
            dsum: dsum && device.tensor(dsum, shape, dtype),
          });
          const tolerance = 2 * maxDifference(low.dx, want.dx) + FEW;
          const dx = await floats(got.dx);
          expect(maxDifference(dx, want.dx)).toBeLessThanOrEqual(tolerance);

          const dweight = device.tensor(held);
          const dbias = device.tensor(held);
          const trained = call(device, `${kind}_backward`, {
            dy: device.tensor(dy, shape, dtype),
            sum: device.tensor(Float32Array.from(inputs.x), shape, dtype),
            weight: device.tensor(Float32Array.from(inputs.weight), [size], weights),
            rstd: device.tensor(Float32Array.from(f.rstd)),
            dsum: dsum && device.tensor(dsum, shape, dtype),
            dweight,
            ...(kind === 'layernorm' && { mean: device.tensor(Float32Array.from(f.mean)), dbias }),
          });
          expect(await floats(trained.dx)).toEqual(dx);
          const f32low = backward(kind, inputs, f32, dy, dsum, naive('f32'));
          for (const [name, tensor] of [
            ['dweight', dweight],
            ['dbias', dbias],
          ] as const) {
            if (name === 'dbias' && kind === 'rmsnorm') continue;
            const total = want[name].map((value, h) => value + held[h]!);
            const bound =
              2 * maxDifference(f32low[name], want[name]) + FEW * Math.max(1, ...total.map(Math.abs));
            expect(maxDifference(await floats(tensor), total)).toBeLessThanOrEqual(bound);
          }
        }
      });
    });

    it('gives a row the same bits in any batch, and gradients the same bits at any thread count', async () => {
      const [rows, size] = [150, 203];
      const inputs = inputsOf(rows, size, 'bf16', 'f32', true);
      const dy = random(rows * size, 7);
      const run = async (on: Device, from: number, to: number) => {
        const part = (values: Numbers) => Array.prototype.slice.call(values, from * size, to * size);
        const cut = { ...inputs, rows: to - from, x: part(inputs.x), residual: part(inputs.residual!) };
        const { weight, ...rest } = upload(on, kind, cut, 'bf16', 'f32');
        const f = call(on, kind, { weight, ...rest, eps: EPS, sum: true });
        const dweight = on.tensor(new Float32Array(size));
        const { dx } = call(on, `${kind}_backward`, {
          dy: on.tensor(Float32Array.from(part(dy)), [to - from, size], 'bf16'),
          sum: f.sum,
          weight,
          rstd: f.rstd,
          ...(kind === 'layernorm' && { mean: f.mean }),
          dweight,
        });
        return [await floats(f.y), await floats(dx), await floats(dweight)] as const;
      };
      const all = await run(device, 0, rows);
      const one = openTest(isa, { threads: 1 });
      expect(await run(one, 0, rows)).toEqual(all);
      const [y, dx] = await run(one, 77, 83);
      expect(y).toEqual(all[0].slice(77 * size, 83 * size));
      expect(dx).toEqual(all[1].slice(77 * size, 83 * size));
      one.dispose();
    });

    it('accepts 0 rows; forward and backward are one launch each', async () => {
      const before = device.stats().launches;
      const inputs = inputsOf(0, 8, 'f32', 'f32', false);
      const { weight, ...rest } = upload(device, kind, inputs, 'f32', 'f32');
      const f = call(device, kind, { weight, ...rest, eps: EPS, sum: true });
      const dweight = device.tensor(random(8));
      const b = call(device, `${kind}_backward`, {
        dy: device.tensor(new Float32Array(0), [0, 8]),
        sum: f.sum,
        weight,
        rstd: f.rstd,
        ...(kind === 'layernorm' && { mean: f.mean }),
        dweight,
      });
      expect(await floats(f.y)).toHaveLength(0);
      expect(await floats(b.dx)).toHaveLength(0);
      expect(await floats(dweight)).toEqual(random(8));
      expect(device.stats().launches - before).toBe(onGpu(isa) ? 0 : 2);
    });
  });
});
