import { describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { gpus, gradientsRoundAlike, skipped } from './gpu.js';
import { type Call, openBoth, results } from './two-devices.js';

type Storage = 'f32' | 'bf16';
const OUTPUTS = ['logprobs', 'entropy', 'lse'] as const;

describe.skipIf(gpus.length === 0)(`the head on cuda:0${skipped}`, () => {
  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });

  const bound = (rows: Storage) => (rows === 'bf16' ? 2 ** -7 : 2 ** -18);

  function forward(x: Float32Array, w: Float32Array, size: number, rows: Storage, weights: Storage): Call {
    const count = x.length / size;
    const vocabulary = w.length / size;
    return {
      op: 'head_logprobs',
      tensors: {
        x: { values: x, shape: [count, size], dtype: rows },
        w: { values: w, shape: [vocabulary, size], dtype: weights },
        targets: {
          values: Int32Array.from({ length: count }, (_, r) => (r * 7919 + vocabulary - 1) % vocabulary),
          shape: [count],
        },
      },
      settings: { temperature: 0.8, expectation: true },
    };
  }

  function backward(call: Call, { lse, entropy }: Record<string, number[]>): Call {
    const { x, w, targets } = call.tensors;
    const rows = x!.shape[0]!;
    const floats = (values: ArrayLike<number>) => ({ values: Float32Array.from(values), shape: [rows] });
    return {
      op: 'head_logprobs_backward',
      tensors: {
        dlogprobs: floats(random(rows, 3)),
        dentropy: floats(random(rows, 4)),
        x,
        w,
        targets,
        lse: floats(lse!),
        entropy: floats(entropy!),
        dw: { values: random(w!.values.length, 5), shape: w!.shape },
      },
      settings: { temperature: 0.8 },
      written: ['dw'],
    };
  }

  // More rows than one fold or span takes; then several items of the vocabulary and spans, of rows that
  // cp.async and TMA read and of more than one tile, with a last tile and item that are not full; then more rounds of the
  // depth than a ring has stages.
  it.each([
    [8200, 8, 20, 'f32', 'f32'],
    [8200, 8, 20, 'bf16', 'bf16'],
    [70, 24, 4200, 'f32', 'f32'],
    [130, 24, 8300, 'bf16', 'bf16'],
    [130, 16, 8300, 'bf16', 'f32'],
    [70, 456, 600, 'bf16', 'bf16'],
  ] as const)('agrees with the CPU: %d rows, %d features, %d tokens, %s, weights %s', async (...given) => {
    const [count, size, vocabulary, rows, weights] = given;
    const call = forward(random(count * size, 1), random(vocabulary * size, 2), size, rows, weights);
    const [got, want] = [await results(gpu, call), await results(cpu, call)];
    expect(got.argmax).toEqual(want.argmax);
    for (const name of [...OUTPUTS, 'expectation'])
      expect(maxDifference(got[name]!, want[name]!), name).toBeLessThan(bound(rows));

    const [gradient, expected] = [
      await results(gpu, backward(call, want)),
      await results(cpu, backward(call, want)),
    ];
    expect(maxDifference(gradient.dx!, expected.dx!)).toBeLessThan(2 * bound(rows));
    // dw is a sum over all rows.
    expect(maxDifference(gradient.dw!, expected.dw!)).toBeLessThan((count / 32) * bound(rows));
  });

  it.each(['f32', 'bf16'] as const)('gives a row the same bits in any batch, in %s', async (dtype) => {
    const [count, size, vocabulary] = [140, 16, 2200];
    const x = random(count * size, 1);
    const w = random(vocabulary * size, 2);
    const rows = async (begin: number, end: number) => {
      const call = forward(x.slice(begin * size, end * size), w, size, dtype, dtype);
      const targets = { values: new Int32Array(end - begin).fill(7), shape: [end - begin] };
      return results(gpu, { ...call, tensors: { ...call.tensors, targets } });
    };
    const all = await rows(0, count);
    for (const [begin, end] of [
      [0, 1],
      [60, 69],
      [130, 140],
    ] as const) {
      const part = await rows(begin, end);
      for (const name of [...OUTPUTS, 'argmax'])
        expect(part[name], name).toEqual(all[name]!.slice(begin, end));
      if (gradientsRoundAlike(gpu, end - begin, count))
        expect(part.expectation).toEqual(all.expectation!.slice(begin * size, end * size));
    }
  });
});
