import { describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';
import { openBoth } from './two-devices.js';

const DEFAULTS = { lr: 1e-2, beta1: 0.9, beta2: 0.99, eps: 1e-8, step: 1, max_norm: 1, grad_scale: 0.5 };

describe.skipIf(gpus.length === 0)(`adamw on cuda:0${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });

  /** Three steps; `offset` leaves the parameters at an odd address. */
  async function trained(device: Device, sizes: readonly number[], offset: number, poison = false) {
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const flat = (values: Float32Array) => {
      const view = device.empty([total + offset]).view(offset, [total]);
      view.write(values);
      return view;
    };
    const state = {
      params: flat(random(total, 1)),
      exp_avg: flat(new Float32Array(total)),
      exp_avg_sq: flat(new Float32Array(total)),
    };
    const segments = {
      sizes: device.tensor(Int32Array.from(sizes)),
      weight_decay: device.tensor(random(sizes.length, 2)),
      lr_scale: device.tensor(random(sizes.length, 3)),
    };
    const stats: number[][] = [];
    for (let step = 1; step <= 3; step++) {
      const grads = random(total, 10 + step);
      if (poison && step === 2) grads[total - 1] = Number.POSITIVE_INFINITY;
      const out = device.ops.adamw({ ...state, ...segments, grads: device.tensor(grads), ...DEFAULTS, step });
      stats.push(Array.from(await out.stats.read()));
    }
    const read = async (name: keyof typeof state) => state[name].readFloats();
    return {
      stats,
      params: await read('params'),
      expAvg: await read('exp_avg'),
      expAvgSq: await read('exp_avg_sq'),
    };
  }

  it.each([
    [[1]],
    [[0, 5, 0, 3]],
    [[2048, 2048]],
    [[3000, 1, 0, 0, 17, 4000, 9]],
    [Array.from({ length: 100 }, (_, i) => (i * 37) % 90)],
  ])('agrees with the CPU over segments %j', async (sizes) => {
    for (const [offset, poison] of [
      [0, false],
      [1, false],
      [0, true],
    ] as const) {
      const [got, want] = [
        await trained(gpu, sizes, offset, poison),
        await trained(cpu, sizes, offset, poison),
      ];
      for (const [step, stats] of want.stats.entries()) {
        const [norm, clip, nonFinite] = stats as [number, number, number];
        expect(got.stats[step]![2]).toBe(nonFinite);
        if (nonFinite) continue;
        expect(Math.abs(got.stats[step]![0]! - norm)).toBeLessThanOrEqual(1e-6 * norm);
        expect(Math.abs(got.stats[step]![1]! - clip)).toBeLessThanOrEqual(1e-6);
      }
      // The last bit of the norm may differ, and so that of every gradient.
      expect(maxDifference(got.params, want.params)).toBeLessThan(1e-6);
      expect(maxDifference(got.expAvg, want.expAvg)).toBeLessThan(1e-7);
      expect(maxDifference(got.expAvgSq, want.expAvgSq)).toBeLessThan(1e-7);
    }
  });

  it('gives the same bits at any address', async () => {
    const sizes = [3000, 1, 0, 17, 4000, 9];
    expect(await trained(gpu, sizes, 1)).toEqual(await trained(gpu, sizes, 0));
  });

  it.each([
    [[4, 3], 'adamw: sizes sum to 7, expected the 6 parameters (op 8)'],
    [[9, -3], 'adamw: sizes[1] is -3, below 0 (op 8)'],
  ])('poisons the queue for sizes %j', async (sizes, message) => {
    const device = openDevice('cuda:0');
    const flat = (seed: number) => device.tensor(random(6, seed));
    const x = device.tensor(random(4));
    device.ops.adamw({
      params: flat(1),
      grads: flat(2),
      exp_avg: flat(3),
      exp_avg_sq: flat(4),
      sizes: device.tensor(Int32Array.from(sizes)),
      weight_decay: device.tensor(new Float32Array(2)),
      ...DEFAULTS,
    });
    // Queued after the failure: it is launched, but its result is not returned.
    const late = device.ops.copy({ x }).y;
    await expect(late.read()).rejects.toThrow(message);
    // What comes after it is told that the device has failed, and of what.
    await expect(device.synchronize()).rejects.toMatchObject({
      code: 'E_DEVICE_FAILED',
      cause: { code: 'E_RANGE' },
    });
    device.dispose();
  });

  it('refuses step 0 when it runs', async () => {
    const device = openDevice('cuda:0');
    const flat = () => device.tensor(random(2));
    device.ops.adamw({
      params: flat(),
      grads: flat(),
      exp_avg: flat(),
      exp_avg_sq: flat(),
      sizes: device.tensor(Int32Array.of(2)),
      weight_decay: device.tensor(Float32Array.of(0)),
      ...DEFAULTS,
      step: 0,
    });
    await expect(device.synchronize()).rejects.toThrow('adamw: step is 0, expected 1 or more');
    device.dispose();
  });
});
