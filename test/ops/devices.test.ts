// The bound of values of an f32 model on a GPU: above what an H100 showed, and too narrow for a kernel that drops a product.
import { afterAll, expect, it } from 'vitest';
import { loadModel, Model } from '../../src/api/model.js';
import { createAdapter } from '../../src/models/adapter.js';
import { baseDirectory } from '../../src/models/base.js';
import type { Device } from '../../src/runtime/device.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { openCheckpoint, readStoredF32 } from '../../src/weights/checkpoint.js';
import { goldenDirectory } from '../models/golden.js';
import { f32Bound, openTest } from './devices.js';
import { maxDifference } from './numbers.js';

const gpu = { info: () => ({ isa: 'sm_90' }) } as Device;
const device = openTest('portable');
afterAll(() => device.dispose());

it.each([
  // research/h100.md, "What the nine failures were"
  ['embedded', 1.9788742065429688e-5],
  ['word-problems-misread', 5.72204291415801e-6],
])('of %s is above %d', (base, recorded) => {
  expect(f32Bound(gpu, 0, baseDirectory(base))).toBeGreaterThan(recorded);
  expect(f32Bound(device, 1e-5, baseDirectory(base))).toBe(1e-5);
});

it('is too narrow for a kernel that drops one product of one layer', async () => {
  const directory = goldenDirectory('llama3');
  const model = await loadModel(device, directory, { dtype: 'f32' });
  const { config } = model.decoder;
  const reader = openCheckpoint(directory);
  const weight = readStoredF32(reader, 'model.layers.0.mlp.down_proj.weight');
  reader.close();
  const features = weight.length / config.hiddenSize;
  const ids = Array.from({ length: 60 }, (_, i) => (i * 37) % config.vocabSize);
  const [want] = await model.score([ids]);
  const settings = {
    peft_type: 'LORA',
    r: 1,
    lora_alpha: 1,
    target_modules: ['down_proj'],
    layers_to_transform: [0],
  };
  const bound = f32Bound(gpu, 0, directory);
  let seen = 0;
  const dropped = [0, 1234, 2345, 4321, 6789];
  for (const at of dropped) {
    // A pair whose product is the weight, negative: x·Wᵀ without that one product.
    const adapter = createAdapter(device, config, parseAdapterConfig(settings, 'test'), { seed: 1 });
    const buffer = adapter.trainable!;
    const values = new Float32Array(buffer.values.size);
    buffer.list.forEach(({ name }, i) => {
      const offset = buffer.offsets[i]!;
      if (/lora_A/.test(name)) values[offset + (at % features)] = 1;
      else values[offset + Math.floor(at / features)] = -weight[at]!;
    });
    buffer.write(values);
    const [got] = await new Model(model.decoder, adapter).score([ids]);
    if (maxDifference(got!.logprobs, want!.logprobs) > bound) seen++;
    adapter.dispose();
  }
  expect(seen).toBe(dropped.length);
  model.dispose();
});
