import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/harness.js';
import { results } from './both.js';
import { gpus, skipped } from './gpu.js';

const cuSeqlens = (lengths: readonly number[]) =>
  Int32Array.from([0, ...lengths.map((_, s) => lengths.slice(0, s + 1).reduce((a, b) => a + b))]);

/** Sequences longer than the tiles of the tensor-core kernels, in bf16. */
describe.skipIf(gpus.length === 0)(`attention over several tiles on cuda:0${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  beforeAll(() => {
    gpu = openDevice('cuda:0');
    cpu = openDevice('cpu');
  });
  afterAll(() => {
    gpu.dispose();
    cpu.dispose();
  });

  const lengths = [300, 0, 141, 5];
  const tokens = 446;
  const callOf = (
    size: number,
    more: { causal?: number; window?: number; branched?: boolean },
    v?: Float32Array,
  ) => {
    const given = (heads: number, seed: number) => ({
      values: random(tokens * heads * size, seed),
      shape: [tokens, heads, size],
      dtype: 'bf16' as const,
    });
    return {
      op: 'attention',
      tensors: {
        q: given(2, 1),
        k: given(1, 2),
        v: v ? { ...given(1, 3), values: v } : given(1, 3),
        cu_seqlens: { values: cuSeqlens(lengths), shape: [lengths.length + 1] },
        branch: more.branched
          ? {
              values: Int32Array.from({ length: tokens }, (_, t) => (t % 300 < 90 ? 0 : 1 + (t % 3))),
              shape: [tokens],
            }
          : undefined,
      },
      scalars: { causal: more.causal ?? 1, window: more.window ?? 0, scale: size ** -0.5 },
    };
  };

  it.each([
    [64, {}],
    [64, { causal: 0 }],
    [64, { window: 150 }],
    [64, { branched: true }],
    [128, {}],
    [128, { window: 70, branched: true }],
  ] as const)('heads of %i, %j: agrees with the CPU', async (size, more) => {
    const call = callOf(size, more);
    const [got, want] = [await results(gpu, call), await results(cpu, call)];
    expect(maxDifference(got.o!, want.o!)).toBeLessThan(2 ** -7);
    expect(maxDifference(got.lse!, want.lse!)).toBeLessThan(2 ** -10);
  });

  it.each([64, 128])('heads of %i: a NaN stays in its own sequence', async (size) => {
    const v = random(tokens * size, 3);
    v.fill(Number.NaN, 300 * size, 301 * size);
    const { o } = await results(gpu, callOf(size, {}, v));
    expect(o!.slice(0, 300 * 2 * size).every(Number.isFinite)).toBe(true);
    expect(o!.slice(441 * 2 * size).every(Number.isFinite)).toBe(true);
    expect(o!.slice(300 * 2 * size, 441 * 2 * size).every(Number.isNaN)).toBe(true);
  });
});
