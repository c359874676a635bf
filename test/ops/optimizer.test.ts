import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';

const DEFAULTS = { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, step: 1, max_norm: 0, grad_scale: 1 };

interface State {
  params: number[];
  expAvg: number[];
  expAvgSq: number[];
}

/** AdamW in float64, after algorithm 2 of Loshchilov and Hutter. */
function reference(
  state: State,
  grads: ArrayLike<number>,
  segments: readonly { size: number; decay: number; scale: number }[],
  s: typeof DEFAULTS,
): { norm: number; clip: number } {
  let sum = 0;
  for (let i = 0; i < grads.length; i++) sum += (s.grad_scale * grads[i]!) ** 2;
  const norm = Math.sqrt(sum);
  const clip = s.max_norm > 0 ? Math.min(1, s.max_norm / (norm + 1e-6)) : 1;
  let i = 0;
  for (const { size, decay, scale } of segments) {
    for (const end = i + size; i < end; i++) {
      const g = grads[i]! * s.grad_scale * clip;
      state.expAvg[i] = s.beta1 * state.expAvg[i]! + (1 - s.beta1) * g;
      state.expAvgSq[i] = s.beta2 * state.expAvgSq[i]! + (1 - s.beta2) * g * g;
      const m = state.expAvg[i]! / (1 - s.beta1 ** s.step);
      const v = state.expAvgSq[i]! / (1 - s.beta2 ** s.step);
      state.params[i] =
        state.params[i]! - s.lr * scale * (decay * state.params[i]! + m / (Math.sqrt(v) + s.eps));
    }
  }
  return { norm, clip };
}

function bytes(values: { readonly buffer: ArrayBufferLike; byteOffset: number; byteLength: number }): Buffer {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength);
}

function flatState(device: Device, params: Float32Array) {
  return {
    params: device.tensor(params),
    exp_avg: device.tensor(new Float32Array(params.length)),
    exp_avg_sq: device.tensor(new Float32Array(params.length)),
  };
}

describe.each(isas)('adamw on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  it('agrees with torch over three clipped steps', async () => {
    const state = flatState(device, Float32Array.of(0.5, -1.25, 2.0, 0.0, -0.75));
    // torch.optim.AdamW 2.13, lr .05, betas (.9, .95), eps 1e-6, weight_decay .1, clip_grad_norm_ to 1.
    const steps = [
      {
        grads: [0.1, -0.2, 0.3, -0.4, 0.5],
        norm: 0.741619884967804,
        params: [
          0.4475004971027374, -1.193750262260437, 1.9400001764297485, 0.04999987781047821,
          -0.7962499260902405,
        ],
      },
      {
        grads: [2.0, 1.0, -3.0, 0.5, 0.25],
        norm: 3.783186435699463,
        params: [
          0.4029717743396759, -1.1972167491912842, 1.953039288520813, 0.07008807361125946, -0.830830991268158,
        ],
      },
      {
        grads: [-0.01, 0.02, 0.0, 0.03, -0.04],
        norm: 0.05477225407958031,
        params: [
          0.36844366788864136, -1.2005470991134644, 1.9610787630081177, 0.08329468965530396,
          -0.8541751503944397,
        ],
      },
    ];
    const sizes = device.tensor(Int32Array.of(2, 3));
    const decay = device.tensor(Float32Array.of(0.1, 0.1));
    for (const [i, expected] of steps.entries()) {
      const { stats } = device.ops.adamw({
        ...state,
        grads: device.tensor(Float32Array.from(expected.grads)),
        sizes,
        weight_decay: decay,
        ...DEFAULTS,
        lr: 0.05,
        beta2: 0.95,
        eps: 1e-6,
        step: i + 1,
        max_norm: 1,
      });
      const [norm, , nonFinite] = await stats.read();
      expect(norm).toBeCloseTo(expected.norm, 6);
      expect(nonFinite).toBe(0);
      expect(maxDifference(await state.params.read(), expected.params)).toBeLessThan(3e-7);
    }
  });

  it('follows float64 over segments with different decay and learning rate, across chunks', async () => {
    const segments = [
      { size: 5, decay: 0.1, scale: 1 },
      { size: 0, decay: 9, scale: 9 },
      { size: 40_001, decay: 0, scale: 0.5 },
      { size: 70_007, decay: 0.3, scale: 2 },
    ];
    const total = segments.reduce((sum, { size }) => sum + size, 0);
    const initial = random(total, 3);
    const state = flatState(device, initial);
    const expected: State = {
      params: Array.from(initial),
      expAvg: new Array(total).fill(0),
      expAvgSq: new Array(total).fill(0),
    };
    for (let step = 1; step <= 4; step++) {
      const grads = random(total, 10 + step);
      const scalars = { ...DEFAULTS, step, max_norm: 2, grad_scale: 0.25 };
      const { stats } = device.ops.adamw({
        ...state,
        grads: device.tensor(grads),
        sizes: device.tensor(Int32Array.from(segments, (s) => s.size)),
        weight_decay: device.tensor(Float32Array.from(segments, (s) => s.decay)),
        lr_scale: device.tensor(Float32Array.from(segments, (s) => s.scale)),
        ...scalars,
      });
      const { norm, clip } = reference(expected, grads, segments, scalars);
      const found = await stats.read();
      expect(Math.abs(found[0]! / norm - 1)).toBeLessThan(1e-6);
      expect(Math.abs(found[1]! / clip - 1)).toBeLessThan(1e-6);
      expect(maxDifference(await state.params.read(), expected.params)).toBeLessThan(1e-6);
      expect(maxDifference(await state.exp_avg.read(), expected.expAvg)).toBeLessThan(1e-8);
    }
  });

  it('gives the same bits with one thread and with many, in one launch', async () => {
    const total = 200_003;
    const run = async (on: Device) => {
      const state = flatState(on, random(total, 5));
      const before = on.stats().launches;
      for (let step = 1; step <= 3; step++) {
        on.ops.adamw({
          ...state,
          grads: on.tensor(random(total, step)),
          sizes: on.tensor(Int32Array.of(total)),
          weight_decay: on.tensor(Float32Array.of(0.01)),
          ...DEFAULTS,
          step,
          max_norm: 1,
        });
      }
      await on.synchronize();
      expect(on.stats().launches - before).toBe(onGpu(isa) ? 6 : 3);
      return state.params.read();
    };
    expect(bytes(await run(device)).equals(bytes(await run(single)))).toBe(true);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])('changes nothing when a gradient is %s', async (bad) => {
    const total = 70_000;
    const initial = random(total, 2);
    const state = flatState(device, initial);
    const grads = random(total, 4);
    grads[total - 1] = bad;
    const { stats } = device.ops.adamw({
      ...state,
      grads: device.tensor(grads),
      sizes: device.tensor(Int32Array.of(total)),
      weight_decay: device.tensor(Float32Array.of(0.1)),
      ...DEFAULTS,
    });
    expect((await stats.read())[2]).toBe(1);
    expect(bytes(await state.params.read()).equals(bytes(initial))).toBe(true);
    expect(maxDifference(await state.exp_avg.read(), new Float32Array(total))).toBe(0);
    expect(maxDifference(await state.exp_avg_sq.read(), new Float32Array(total))).toBe(0);
  });

  it('accepts a gradient whose square exceeds the range of f32', async () => {
    const state = flatState(device, Float32Array.of(1, 1));
    const { stats } = device.ops.adamw({
      ...state,
      grads: device.tensor(Float32Array.of(3e30, 4e30)),
      sizes: device.tensor(Int32Array.of(2)),
      weight_decay: device.tensor(Float32Array.of(0)),
      ...DEFAULTS,
      max_norm: 1,
    });
    const [norm, clip, nonFinite] = await stats.read();
    expect(norm! / 5e30).toBeCloseTo(1, 6);
    expect(clip! * 5e30).toBeCloseTo(1, 5);
    expect(nonFinite).toBe(0);
    expect((await state.params.read())[0]).toBeCloseTo(0.99, 6);
  });

  it('accepts 0 parameters', async () => {
    const state = flatState(device, new Float32Array(0));
    const { stats } = device.ops.adamw({
      ...state,
      grads: device.tensor(new Float32Array(0)),
      sizes: device.tensor(new Int32Array(0)),
      weight_decay: device.tensor(new Float32Array(0)),
      ...DEFAULTS,
      max_norm: 1,
    });
    expect(Array.from(await stats.read())).toEqual([0, 1, 0]);
  });

  it.each([
    { sizes: [2, 2], step: 1, message: 'adamw: sizes sum to 4, expected the 3 parameters' },
    { sizes: [4, -1], step: 1, message: 'adamw: sizes[1] is -1, below 0' },
    { sizes: [3, 0], step: 0, message: 'adamw: step is 0, expected 1 or more' },
  ])('refuses sizes $sizes at step $step', async ({ sizes, step, message }) => {
    const poisoned = openTest(isa);
    const state = flatState(poisoned, Float32Array.of(1, 2, 3));
    const { stats } = poisoned.ops.adamw({
      ...state,
      grads: poisoned.tensor(Float32Array.of(1, 1, 1)),
      sizes: poisoned.tensor(Int32Array.from(sizes)),
      weight_decay: poisoned.tensor(Float32Array.of(0, 0)),
      ...DEFAULTS,
      step,
    });
    await expect(stats.read()).rejects.toThrow(message);
    poisoned.dispose();
  });
});
