// How many kernels a layer takes at decoding: docs/kernels/decode.md counts on it.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { KeyValueCache } from '../../src/generate/cache/keys-values.js';
import { stepInputs } from '../../src/generate/step/inputs.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { goldenDirectory } from '../models/golden.js';
import { gpus, skipped } from './gpu.js';

describe.skipIf(gpus.length === 0)(`launches of a layer on cuda:0${skipped}`, () => {
  let device: Device;
  beforeAll(() => {
    device = openDevice('cuda:0');
  });
  afterAll(() => device.dispose());

  /** Of a forward of one token for each of `rows` rows, without embedding and last norm. */
  async function launchesOfLayer(name: string, rows: number): Promise<number> {
    const { decoder } = await loadModel(device, goldenDirectory(name), { dtype: 'bf16' });
    const cache = new KeyValueCache(decoder, rows, rows);
    const slices = Array.from({ length: rows }, (_, r) => ({
      row: { role: '', tokens: [1, 2 + r], longest: 9 },
      from: 1,
      to: 2,
      cached: 1,
      state: undefined,
      pages: [r],
    }));
    const inputs = stepInputs(decoder, slices);
    await device.synchronize();
    const before = device.stats().launches;
    decoder.forwardAttending(inputs, {}, cache.past(inputs)).dispose();
    await device.synchronize();
    const launches = device.stats().launches - before;
    cache.dispose();
    return (launches - 2) / decoder.config.numLayers;
  }

  // Norm, q, k and v; norms of heads, rotation, cache write and attention; o onto the residual; norm, gate and up; down onto
  // the residual. Norms of more rows take a launch each.
  it.each([
    ['qwen2', 1, 5],
    ['qwen3', 1, 5],
    ['qwen3', 16, 5],
    ['qwen3', 17, 7],
  ])('%s, %i rows: %i', async (name, rows, launches) => {
    expect(await launchesOfLayer(name, rows)).toBe(launches);
  });
});
