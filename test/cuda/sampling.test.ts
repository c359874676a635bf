// Draws over vocabularies of many tiles, where filters leave more tokens than a GPU gathers, few, and equals.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { random } from '../ops/numbers.js';
import { gpus, skipped } from './gpu.js';

const [R, V] = [12, 20_011];
/** By row mod 3: flat, spread, and of four values. */
const LOGITS = random(R * V, 1).map((x, i) => {
  const kind = Math.floor(i / V) % 3;
  return kind === 0 ? 0.25 * x : kind === 1 ? 6 * x : Math.round(1.5 * x);
});
const KEYS = Int32Array.from(random(4 * R, 2), (x, i) => (i % 4 < 3 ? Math.floor((x + 1) * 2 ** 29) : 0));
const TEMPERATURE = Float32Array.from({ length: R }, (_, r) => [1, 0.7, 1.3][r % 3] as number);
const TOP_K = Int32Array.of(0, 0, 0, 0, 0, 0, 9000, 40, 300, 0, 0, 0);
const TOP_P = Float32Array.of(0.9, 0.95, 0.5, 0.999, 1, 0.2, 0.8, 0.9, 0.7, 1, 1, 1);
const MIN_P = Float32Array.of(0, 0, 0, 0, 0.02, 0, 0, 0, 0, 0.3, 0.9, 0.001);

describe.skipIf(gpus.length === 0)(`sample on cuda:0${skipped}`, () => {
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

  async function drawn(device: Device) {
    const { tokens, logprobs, sampling_logprobs, status } = device.ops.sample({
      logits: device.tensor(LOGITS, [R, V]),
      keys: device.tensor(KEYS, [R, 4]),
      temperature: device.tensor(TEMPERATURE),
      top_k: device.tensor(TOP_K),
      top_p: device.tensor(TOP_P),
      min_p: device.tensor(MIN_P),
    });
    return {
      tokens: await tokens.read(),
      logprobs: await logprobs.readFloats(),
      sampling: await sampling_logprobs.readFloats(),
      status: await status.read(),
    };
  }

  it('draws the tokens of the CPU, with its log-probabilities', async () => {
    const [got, want] = [await drawn(gpu), await drawn(cpu)];
    expect(got.status.every((status) => status === 0)).toBe(true);
    const same = Array.from({ length: R }, (_, r) => r).filter((r) => got.tokens[r] === want.tokens[r]);
    // Sums of other order and another exp may move a draw at the border of two tokens.
    expect(same.length).toBeGreaterThanOrEqual(R - 1);
    for (const r of same) {
      expect(Math.abs(got.logprobs[r]! - want.logprobs[r]!)).toBeLessThan(1e-5);
      expect(Math.abs(got.sampling[r]! - want.sampling[r]!)).toBeLessThan(1e-5);
    }
  });
});
