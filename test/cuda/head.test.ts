import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/harness.js';
import { results } from './both.js';
import { gpus, skipped } from './gpu.js';

/** More rows than the head takes at a time. */
describe.skipIf(gpus.length === 0)(`the head over groups of rows on cuda:0${skipped}`, () => {
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
  const [rows, size, vocabulary] = [2050, 8, 40];
  const targets = {
    values: Int32Array.from({ length: rows }, (_, r) => (r * 7) % vocabulary),
    shape: [rows],
  };

  it.each(['f32', 'bf16'] as const)('agrees with the CPU, in %s', async (dtype) => {
    const x = { values: random(rows * size, 1), shape: [rows, size], dtype };
    const w = { values: random(vocabulary * size, 2), shape: [vocabulary, size], dtype };
    const scalars = { temperature: 0.8 };
    const bound = dtype === 'bf16' ? 2 ** -7 : 2 ** -18;
    const forward = { op: 'head_logprobs', tensors: { x, w, targets }, scalars, wanted: ['expectation'] };
    const [got, want] = [await results(gpu, forward), await results(cpu, forward)];
    expect(got.argmax).toEqual(want.argmax);
    for (const name of ['logprobs', 'entropy', 'lse', 'expectation'])
      expect(maxDifference(got[name]!, want[name]!), name).toBeLessThan(bound);

    const floats = (values: readonly number[]) => ({ values: Float32Array.from(values), shape: [rows] });
    const backward = {
      op: 'head_logprobs_backward',
      tensors: {
        dlogprobs: { values: random(rows, 3), shape: [rows] },
        dentropy: { values: random(rows, 4), shape: [rows] },
        x,
        w,
        targets,
        lse: floats(want.lse!),
        entropy: floats(want.entropy!),
        dw: { values: random(vocabulary * size, 5), shape: [vocabulary, size] },
      },
      scalars,
      written: ['dw'],
    };
    const [gradient, expected] = [await results(gpu, backward), await results(cpu, backward)];
    expect(maxDifference(gradient.dx!, expected.dx!)).toBeLessThan(2 * bound);
    // dw adds up over all rows.
    expect(maxDifference(gradient.dw!, expected.dw!)).toBeLessThan(64 * bound);
  });
});
