// An adapter above one that is merged into the weights, and both as one on the base without either.
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { type Adapter, loadAdapter } from '../../src/models/adapter.js';
import { createAdapterOn } from '../../src/models/adapter-on-base.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import { headOutputs, roleHead } from '../../src/models/heads.js';
import { loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { readAdapterConfig } from '../../src/weights/adapter.js';
import { type LoraConfig, PEFT_DEFAULTS } from '../../src/weights/adapter-config.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { DECODERS, goldenDirectory, tensorsIn } from './golden.js';

const device = openTest();
afterAll(() => device.dispose());

/** Adapters of PEFT with a B that is not zero, of rank 4 and α 16. */
const sequences = [{ ids: [5, 17, 99, 3, 250, 7] }, { ids: [4, 8, 15] }];

const lora = (config: Partial<LoraConfig>): LoraConfig => ({
  ...PEFT_DEFAULTS,
  targetModules: { kind: 'allLinear' },
  ...config,
});
const names = (...list: string[]) => ({ kind: 'names', names: list }) as const;

/** What a decoder computes, before a head of tokens, and after any other. */
async function hiddenOf(decoder: Decoder, role: Role): Promise<Float32Array> {
  const batch = raggedBatch(device, sequences, decoder.config);
  try {
    const hidden = device.scope(() => {
      const states = decoder.forward(batch, role);
      const head = roleHead(decoder, role);
      return head ? headOutputs(states, head) : states;
    });
    const values = await hidden.readFloats();
    hidden.dispose();
    return values;
  } finally {
    batch.dispose();
  }
}

/** Every parameter moves, as by training. */
async function move(adapter: Adapter): Promise<void> {
  const trainable = adapter.trainable as TrainableParameters;
  const values = await trainable.values.readFloats();
  trainable.write(Float32Array.from(values, (value, k) => value + Math.sin(k * 0.7) / 16));
}

/** The hidden states of a stacked adapter that has moved, and its directory. */
async function stacked(
  base: string,
  { first, config, dtype = 'f32' }: { first: string; config: LoraConfig; dtype?: 'f32' | 'bf16' },
) {
  const directory = join(temporaryDirectory(), 'adapter');
  const decoder = await loadDecoder(device, base, { dtype, merged: first });
  const adapter = await createAdapterOn(decoder, config, { seed: 1 });
  const begun = await hiddenOf(decoder, { adapter });
  await move(adapter);
  const hidden = await hiddenOf(decoder, { adapter });
  await adapter.save(directory);
  adapter.dispose();
  decoder.dispose();
  return { directory, begun, hidden };
}

/** The hidden states of a base under the adapter in a directory. */
async function reloaded(base: string, directory: string, dtype: 'f32' | 'bf16' = 'f32') {
  const decoder = await loadDecoder(device, base, { dtype });
  const adapter = loadAdapter(device, decoder.config, directory);
  const hidden = await hiddenOf(decoder, { adapter });
  adapter.dispose();
  decoder.dispose();
  return hidden;
}

describe.each(DECODERS)('%s', (name) => {
  const base = goldenDirectory(name);
  const first = join(base, 'adapter');

  test.each([
    ['all modules', lora({ r: 2, loraAlpha: 3 })],
    ['some modules, by √r', lora({ r: 3, loraAlpha: 2, useRslora: true, targetModules: names('q_proj') })],
    [
      'other ranks and layers',
      lora({
        targetModules: names('v_proj', 'q_proj'),
        layersToTransform: [1],
        layersPattern: ['layers'],
        rankPattern: { q_proj: 1 },
        alphaPattern: { v_proj: 5 },
      }),
    ],
  ])('begins as the first, and is saved as one with it: %s', async (_, config) => {
    const { directory, begun, hidden } = await stacked(base, { first, config });
    const alone = await reloaded(base, first);
    expect(maxDifference(begun, alone)).toBeLessThan(1e-4);
    expect(maxDifference(hidden, alone)).toBeGreaterThan(1e-2);
    expect(maxDifference(await reloaded(base, directory), hidden)).toBeLessThan(1e-4);
  });

  test('holds the values of the first, times its scaling', async () => {
    const { directory } = await stacked(base, { first, config: lora({ r: 2 }) });
    const [before, after] = [first, directory].map((each) =>
      tensorsIn(join(each, 'adapter_model.safetensors')),
    );
    const pairs = [...(before?.keys() ?? [])].filter((tensor) => tensor.endsWith('lora_A.weight'));
    expect(pairs.length).toBeGreaterThan(0);
    for (const pair of pairs) {
      const a = before?.get(pair) as Float32Array;
      expect(after?.get(pair)?.subarray(0, a.length), pair).toEqual(a);
      const name = pair.replace('lora_A', 'lora_B');
      const b = before?.get(name) as Float32Array;
      const both = after?.get(name) as Float32Array;
      const rows = b.length / 4;
      const own = Float32Array.from(b, (_, i) => both[Math.floor(i / 4) * 6 + (i % 4)] as number);
      expect(both).toHaveLength(rows * 6);
      expect(own, name).toEqual(b.map((value) => 4 * value));
    }
  });
});

test('an adapter on a stacked one is one adapter again', async () => {
  const base = goldenDirectory('qwen2');
  const second = await stacked(base, { first: join(base, 'adapter'), config: lora({ r: 2 }) });
  const third = await stacked(base, {
    first: second.directory,
    config: lora({ r: 1, targetModules: names('v_proj') }),
  });
  expect(maxDifference(third.begun, second.hidden)).toBeLessThan(1e-4);
  expect(maxDifference(await reloaded(base, third.directory), third.hidden)).toBeLessThan(1e-4);
  // As few patterns as there can be: some readers of PEFT's adapters know none.
  const found = readAdapterConfig(third.directory);
  expect(found).toMatchObject({
    r: 6,
    loraAlpha: 6,
    rankPattern: { v_proj: 7 },
    alphaPattern: { v_proj: 7 },
  });
});

test('a module that is kept whole holds the first', async () => {
  const base = goldenDirectory('deberta-sequence');
  const first = join(temporaryDirectory(), 'first');
  const decoder = await loadDecoder(device, base, { dtype: 'f32' });
  const adapter = await createAdapterOn(
    decoder,
    lora({ r: 3, targetModules: names('query_proj', 'pooler.dense') }),
    { seed: 2 },
  );
  await move(adapter);
  await adapter.save(first);
  adapter.dispose();
  decoder.dispose();
  const paired = [...tensorsIn(join(first, 'adapter_model.safetensors')).keys()];
  expect(paired).toContain('base_model.model.pooler.dense.lora_A.weight');

  const config = lora({ r: 2, targetModules: names('query_proj'), modulesToSave: ['pooler'] });
  const { directory, begun, hidden } = await stacked(base, { first, config });
  expect(maxDifference(begun, await reloaded(base, first))).toBeLessThan(1e-4);
  expect(maxDifference(await reloaded(base, directory), hidden)).toBeLessThan(1e-4);
  const stored = [...tensorsIn(join(directory, 'adapter_model.safetensors')).keys()];
  expect(stored.filter((name) => name.includes('pooler')).sort()).toEqual([
    'base_model.model.pooler.dense.bias',
    'base_model.model.pooler.dense.weight',
  ]);
  // No target either, whatever a reader would make of one that is kept whole.
  const { targetModules } = readAdapterConfig(directory);
  expect(targetModules).toEqual(names('query_proj'));
});

test('bf16: added in f32 and rounded once', async () => {
  const base = goldenDirectory('qwen2');
  const options = { first: join(base, 'adapter'), config: lora({ r: 2 }) };
  const exact = await stacked(base, options);
  const { directory, hidden } = await stacked(base, { ...options, dtype: 'bf16' });
  const error = maxDifference(hidden, exact.hidden);
  expect(error).toBeGreaterThan(0);
  // The rounding of weights and activations, of which the saved adapter has its own.
  expect(error).toBeLessThan(3 * maxDifference(await reloaded(base, directory, 'bf16'), exact.hidden));
});

test('every weight that is trained begins with it', async () => {
  const base = goldenDirectory('qwen2');
  const first = join(base, 'adapter');
  const { decoder } = loadTrainableDecoder(device, base, { dtype: 'f32', merged: first });
  expect(maxDifference(await hiddenOf(decoder, {}), await reloaded(base, first))).toBeLessThan(1e-4);
  decoder.dispose();
});

test.each([
  ['a head', 'qwen2', goldenPath('heads/token-adapter'), /found a head; continue the adapter, or merge it/],
  [
    'a whole module',
    'deberta-sequence',
    goldenPath('deberta-sequence/adapter'),
    /modules_to_save: expected none/,
  ],
  ['another shape', 'opt', goldenPath('qwen2/adapter'), /the weights do not fit the model's configuration/],
])('refuses an adapter with %s', async (_, name, first, sentence) => {
  const found = await loadDecoder(device, goldenDirectory(name), { merged: first }).then(
    () => 'loaded',
    ({ message }: Error) => message,
  );
  expect(found).toMatch(sentence);
  expect(found.split('\n')).toHaveLength(1);
});
