import { describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';
import { type Given, openBoth, results } from './two-devices.js';

const sizes = [
  [0, 8],
  [1, 1],
  [3, 7],
  [5, 64],
  [9, 100],
  [70, 31],
  [33, 600],
  [2, 5000],
] as const;

describe.skipIf(gpus.length === 0)(`norm on cuda:0${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });

  /** One rounding of the stored type; f32 sums in another order differ by a few of its steps. */
  const step = (dtype: 'f32' | 'bf16', values: readonly number[]) =>
    (dtype === 'bf16' ? 2 ** -8 : 2 ** -20) * Math.max(1e-30, ...values.map(Math.abs));

  describe.each([
    ['f32', 'f32'],
    ['bf16', 'bf16'],
    ['bf16', 'f32'],
  ] as const)('%s rows, %s weights', (dtype, weights) => {
    it.each(sizes)('rmsnorm and its backward agree with the CPU: %i rows of %i', async (rows, size) => {
      const rowsOf = (seed: number, offset = 0): Given => ({
        values: random(rows * size, seed),
        shape: [rows, size],
        dtype,
        offset,
      });
      const weight = { values: random(size, 3), shape: [size], dtype: weights };
      for (const extra of [true, false]) {
        for (const sum of [true, false]) {
          const call = {
            op: 'rmsnorm',
            tensors: { x: rowsOf(1, extra ? 1 : 0), weight, residual: extra ? rowsOf(2) : undefined },
            settings: { eps: 1e-5, sum },
          };
          const [got, want] = [await results(gpu, call), await results(cpu, call)];
          expect(got.sum).toEqual(want.sum);
          expect(maxDifference(got.rstd!, want.rstd!)).toBeLessThanOrEqual(step('f32', want.rstd!));
          expect(maxDifference(got.y!, want.y!)).toBeLessThanOrEqual(step(dtype, want.y!));
        }
        const call = {
          op: 'rmsnorm_backward',
          tensors: {
            dy: rowsOf(4),
            sum: rowsOf(5),
            weight,
            rstd: { values: random(rows, 6).map((v) => 1.5 + v), shape: [rows] },
            dsum: extra ? rowsOf(7) : undefined,
            dweight: extra ? { values: random(size, 8), shape: [size] } : undefined,
          },
          written: extra ? ['dweight'] : [],
        };
        const [got, want] = [await results(gpu, call), await results(cpu, call)];
        expect(maxDifference(got.dx!, want.dx!)).toBeLessThanOrEqual(step(dtype, want.dx!));
        if (extra) {
          const bound = 8 * step('f32', want.dweight!);
          expect(maxDifference(got.dweight!, want.dweight!)).toBeLessThanOrEqual(bound);
        }
      }
    });
  });

  it('gives a row the same bits in any batch, at any address and in place', async () => {
    const [rows, size] = [40, 203];
    const [x, residual, weight] = [random(rows * size, 1), random(rows * size, 2), random(size, 3)];
    const forward = (from: number, to: number, offset: number) => {
      const cut = (values: Float32Array): Given => ({
        values: values.slice(from * size, to * size),
        shape: [to - from, size],
        offset,
      });
      return results(gpu, {
        op: 'rmsnorm',
        tensors: { x: cut(x), residual: cut(residual), weight: { values: weight, shape: [size] } },
        settings: { eps: 1e-5, sum: true },
      });
    };
    const all = await forward(0, rows, 0);
    const part = await forward(7, 12, 3);
    expect(part.y).toEqual(all.y!.slice(7 * size, 12 * size));
    expect(part.rstd).toEqual(all.rstd!.slice(7, 12));

    const held = gpu.tensor(residual, [rows, size]);
    const { y } = gpu.ops.rmsnorm({
      x: gpu.tensor(x, [rows, size]),
      residual: held,
      weight: gpu.tensor(weight),
      sum: held,
      eps: 1e-5,
    });
    expect(Array.from(await y.read())).toEqual(all.y);
    expect(Array.from(await held.read())).toEqual(all.sum);
  });

  it('takes one launch, and one more for the gradient of the weight', async () => {
    const x = gpu.tensor(random(40), [5, 8]);
    const weight = gpu.tensor(random(8));
    const { rstd } = gpu.ops.rmsnorm({ x, weight, eps: 1e-5 });
    await gpu.synchronize();
    const before = gpu.stats().launches;
    gpu.ops.rmsnorm({ x, weight, eps: 1e-5 });
    gpu.ops.rmsnorm_backward({ dy: x, sum: x, weight, rstd });
    gpu.ops.rmsnorm_backward({ dy: x, sum: x, weight, rstd, dweight: gpu.tensor(random(8)) });
    await gpu.synchronize();
    expect(gpu.stats().launches - before).toBe(4);
  });
});
