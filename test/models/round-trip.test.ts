// What is saved loads again with the same values: decoders in every dtype and layout, adapters after training.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { readModelConfig } from '../../src/architectures/table.js';
import { Tape } from '../../src/autograd/tape.js';
import { loadAdapter } from '../../src/models/adapter.js';
import { createAdapterOn } from '../../src/models/adapter-on-base.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import { loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { saveDecoder } from '../../src/models/save.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogits, headLogprobs } from '../../src/ops/head.js';
import { AdamW } from '../../src/train/adamw.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { openCheckpoint } from '../../src/weights/checkpoint.js';
import type { FloatName } from '../../src/weights/dtype.js';
import { openTest } from '../ops/devices.js';
import { maxDifference, random } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { changedModel } from './changed-model.js';
import { DECODERS, expectedOf, goldenDirectory } from './golden.js';

const device = openTest();
afterAll(() => device.dispose());

async function logitsOf(decoder: Decoder, ids: readonly number[], role: Role = {}): Promise<Float32Array> {
  const batch = raggedBatch(device, [{ ids }], decoder.config);
  const logits = device.scope(() => headLogits(decoder.forward(batch, role), decoder.head(role)));
  const values = await logits.readFloats();
  logits.dispose();
  batch.dispose();
  return values;
}

async function logitsIn(directory: string, dtype: 'f32' | 'bf16', ids: readonly number[]) {
  const decoder = await loadDecoder(device, directory, { dtype });
  const values = await logitsOf(decoder, ids);
  decoder.dispose();
  return values;
}

// qwen2 and opt tie their head to their embedding, the others do not.
describe.each(DECODERS)('a saved %s', (name) => {
  const ids = expectedOf(name).sequences[0]!;
  const directory = goldenDirectory(name);

  test.each([undefined, 50_000])(
    'gives the same logits, bit by bit (shards of %s bytes)',
    async (maxShardBytes) => {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const expected = await logitsOf(decoder, ids);
      const copy = join(temporaryDirectory(), 'copy');
      const rounding = await saveDecoder(decoder, copy, maxShardBytes ? { maxShardBytes } : {});
      expect(rounding).toMatchObject({ inexact: 0 });
      decoder.dispose();
      expect(await logitsIn(copy, 'f32', ids)).toEqual(expected);

      const files = readdirSync(copy).filter((file) => file.endsWith('.safetensors'));
      expect(files.length > 1).toBe(maxShardBytes !== undefined);
      const [before, after] = [openCheckpoint(directory), openCheckpoint(copy)];
      expect([...after.tensors.keys()].sort()).toEqual([...before.tensors.keys()].sort());
      for (const tensor of before.tensors.keys())
        expect(Buffer.compare(after.read(tensor), before.read(tensor)), tensor).toBe(0);
      before.close();
      after.close();
      const { source: _, ...config } = readModelConfig(copy);
      const { source: __, ...original } = readModelConfig(directory);
      expect(config).toEqual(original);
    },
  );

  test.each<[FloatName, number]>([
    ['bf16', 2 ** -8],
    ['f16', 2 ** -11],
  ])('as %s is within its rounding, and saved again the same', async (dtype, step) => {
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const expected = await logitsOf(decoder, ids);
    const [once, twice] = [join(temporaryDirectory(), 'once'), join(temporaryDirectory(), 'twice')];
    const { inexact, values } = await saveDecoder(decoder, once, { dtype });
    expect(inexact).toBeGreaterThan(0.5 * values);
    decoder.dispose();
    const reloaded = await loadDecoder(device, once, { dtype: 'f32' });
    const found = await logitsOf(reloaded, ids);
    const largest = expected.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    expect(maxDifference(found, expected)).toBeLessThan(20 * step * largest);
    expect(maxDifference(found, expected)).toBeGreaterThan(0);
    expect(await saveDecoder(reloaded, twice, { dtype })).toEqual({ inexact: 0, values });
    reloaded.dispose();
    const bytes = (saved: string) => readFileSync(join(saved, 'model.safetensors'));
    expect(bytes(twice).equals(bytes(once))).toBe(true);
  });

  test('of bf16 weights gives the same bits from a bf16 decoder', async () => {
    const stored = await changedModel(name, { dtype: 'BF16' });
    const decoder = await loadDecoder(device, stored, { dtype: 'bf16' });
    expect(decoder.rounding).toBeUndefined();
    const expected = await logitsOf(decoder, ids);
    const copy = join(temporaryDirectory(), 'copy');
    expect(await saveDecoder(decoder, copy, { dtype: 'bf16' })).toMatchObject({ inexact: 0 });
    decoder.dispose();
    expect(await logitsIn(copy, 'bf16', ids)).toEqual(expected);
  });
});

test.each(['F32', 'f64', null])('%s is no dtype, and nothing is written', async (dtype) => {
  const decoder = await loadDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  const copy = join(temporaryDirectory(), 'copy');
  await expect(saveDecoder(decoder, copy, { dtype: dtype as 'f32' })).rejects.toThrow(
    "saveDecoder: dtype: expected 'f32', 'bf16' or 'f16', found",
  );
  expect(existsSync(copy)).toBe(false);
  await saveDecoder(decoder, copy, { dtype: 'f32' });
  expect(openCheckpoint(copy).tensors.get('model.norm.weight')?.dtype).toBe('F32');
  decoder.dispose();
});

test('f16 weights report how many values bf16 changes, and none for f32', async () => {
  const stored = await changedModel('llama3', { dtype: 'F16' });
  const decoder = await loadDecoder(device, stored, { dtype: 'bf16' });
  const { inexact, values } = decoder.rounding!;
  const matrices = [...decoder.weights.values()].filter(({ value }) => value.shape.length === 2);
  expect(values).toBe(matrices.reduce((sum, { value }) => sum + value.size, 0));
  // f16 has three more binary digits, so seven of eight values change.
  expect(inexact / values).toBeGreaterThan(0.8);
  expect(inexact / values).toBeLessThan(0.95);
  decoder.dispose();
  const exact = await loadDecoder(device, stored, { dtype: 'f32' });
  expect(exact.rounding).toBeUndefined();
  exact.dispose();
});

test('trained weights are read back bit by bit', async () => {
  const { decoder, parameters } = loadTrainableDecoder(device, goldenDirectory('qwen3'), { dtype: 'f32' });
  parameters.values.write(random(parameters.size, 5));
  const copy = join(temporaryDirectory(), 'copy');
  await saveDecoder(decoder, copy);
  const again = loadTrainableDecoder(device, copy, { dtype: 'f32' });
  expect(await again.parameters.values.readBytes()).toEqual(await parameters.values.readBytes());
  for (const owned of [decoder, parameters, again.decoder, again.parameters]) owned.dispose();
});

describe('an adapter trained here', () => {
  const ids = expectedOf('qwen3').sequences[0]!;
  const settings = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    r: 3,
    lora_alpha: 6,
    use_rslora: true,
    target_modules: ['q_proj', 'v_proj', 'down_proj'],
    rank_pattern: { 'layers.1.mlp.down_proj': 5 },
    alpha_pattern: { v_proj: 2 },
  };

  test('is read back bit by bit, frozen or trainable, with the same logits', async () => {
    const decoder = await loadDecoder(device, goldenDirectory('qwen3'), { dtype: 'f32' });
    const plain = await logitsOf(decoder, ids);
    const config = parseAdapterConfig(
      { ...settings, modules_to_save: ['lm_head'], base_model_name_or_path: 'qwen3' },
      'lora',
    );
    const adapter = await createAdapterOn(decoder, config, { seed: 9 });
    expect(await logitsOf(decoder, ids, { adapter })).toEqual(plain);
    const parameters = adapter.trainable!;
    const optimizer = new AdamW(parameters, {
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      weightDecay: 0.01,
      maxGradNorm: 1,
    });
    const losses: number[] = [];
    for (let step = 0; step < 6; step++) {
      parameters.zeroGrads();
      const batch = raggedBatch(device, [{ ids }], decoder.config);
      const tape = new Tape(device);
      const loss = device.scope(() =>
        tape.run(() => {
          const targets = device.tensor(Int32Array.from([...ids.slice(1), 0]));
          const weights = device.tensor(
            Float32Array.from(ids, (_, t) => (t < ids.length - 1 ? 1 / ids.length : 0)),
          );
          const role = { adapter };
          return nll(
            headLogprobs(decoder.forward(batch, role), decoder.head(role), targets).logprobs,
            weights,
          );
        }),
      );
      tape.backward([[loss, 1]]);
      await optimizer.step(0.01);
      losses.push((await loss.readFloats())[0]!);
      for (const owned of [loss, batch, tape]) owned.dispose();
    }
    expect(losses.at(-1)).toBeLessThan(losses[0]! - 0.1);

    const directory = join(temporaryDirectory(), 'adapter');
    await adapter.save(directory);
    const trained = await logitsOf(decoder, ids, { adapter });
    expect(maxDifference(trained, plain)).toBeGreaterThan(1e-2);
    for (const trainable of [false, true]) {
      const again = loadAdapter(device, decoder.config, directory, { trainable });
      expect(await logitsOf(decoder, ids, { adapter: again })).toEqual(trained);
      expect(again.config).toEqual(config);
      if (trainable)
        expect(await again.trainable!.values.readBytes()).toEqual(await parameters.values.readBytes());
      again.dispose();
    }
    for (const owned of [optimizer, adapter, decoder]) owned.dispose();
  });
});
