import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { GemmaConfig } from '../../src/architectures/gemma.js';
import { modelConfigJson, newModelConfig, parseModelConfig } from '../../src/architectures/table.js';
import { raggedBatch } from '../../src/models/batch.js';
import { loadDecoder } from '../../src/models/load.js';
import { readWeight, saveDecoder } from '../../src/models/save.js';
import { readStoredF32 } from '../../src/weights/checkpoint.js';
import type { JsonObject } from '../../src/weights/json.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { openTest } from '../ops/devices.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** As google/gemma-3-1b-it has it. */
const RELEASED = {
  architectures: ['Gemma3ForCausalLM'],
  attention_bias: false,
  attention_dropout: 0,
  attn_logit_softcapping: null,
  bos_token_id: 2,
  cache_implementation: 'hybrid',
  eos_token_id: [1, 106],
  final_logit_softcapping: null,
  head_dim: 256,
  hidden_activation: 'gelu_pytorch_tanh',
  hidden_size: 1152,
  initializer_range: 0.02,
  intermediate_size: 6912,
  max_position_embeddings: 32768,
  model_type: 'gemma3_text',
  num_attention_heads: 4,
  num_hidden_layers: 26,
  num_key_value_heads: 1,
  pad_token_id: 0,
  query_pre_attn_scalar: 256,
  rms_norm_eps: 1e-6,
  rope_local_base_freq: 10000,
  rope_scaling: null,
  rope_theta: 1000000,
  sliding_window: 512,
  sliding_window_pattern: 6,
  torch_dtype: 'bfloat16',
  transformers_version: '4.50.0.dev0',
  use_cache: true,
  vocab_size: 262144,
};
const parse = (keys: object = {}) =>
  parseModelConfig({ ...RELEASED, ...keys } as JsonObject, 'config.json') as GemmaConfig;

describe('gemma3_text', () => {
  const device = openTest('portable');
  afterAll(() => device.dispose());

  it('reads the configuration of a released model', () => {
    const config = parse();
    expect(config).toMatchObject({
      headDim: 256,
      numKeyValueHeads: 1,
      rope: { theta: 1e6, scaling: { type: 'default' } },
      localRope: { theta: 1e4, scaling: { type: 'default' } },
      eosTokenIds: [1, 106],
      tieWordEmbeddings: true,
      bias: false,
    });
    const whole = config.slidingWindow.flatMap((window, index) => (window === undefined ? index : []));
    expect(whole).toEqual([5, 11, 17, 23]);
    expect(new Set(config.slidingWindow)).toEqual(new Set([512, undefined]));
  });

  it('reads both spellings as the same model, and writes what it reads', () => {
    const older = parse({ rope_scaling: { rope_type: 'linear', factor: 8 } });
    const { source, ...again } = parseModelConfig(modelConfigJson(older), 'config.json');
    expect(source).not.toHaveProperty('rope_parameters');
    expect(source).toMatchObject({ rope_theta: 1e6, rope_local_base_freq: 1e4 });
    expect({ ...again, source: older.source }).toEqual(older);
    expect(older.rope.scaling).toEqual({ type: 'linear', factor: 8 });
    expect(older.localRope.scaling).toEqual({ type: 'default' });
  });

  it.each<[string, object, string]>([
    [
      'scores scaled otherwise',
      { query_pre_attn_scalar: 168 },
      'query_pre_attn_scalar: expected head_dim, 256',
    ],
    ['another activation', { hidden_activation: 'silu' }, "hidden_activation: expected 'gelu_pytorch_tanh'"],
    ['soft caps', { final_logit_softcapping: 30 }, 'final_logit_softcapping: expected nothing'],
    [
      'tokens that see those after them',
      { use_bidirectional_attention: true },
      'use_bidirectional_attention',
    ],
    [
      'layers of another kind',
      { layer_types: Array(26).fill('linear_attention') },
      'layer_types: expected only',
    ],
    ['too few layer types', { layer_types: ['full_attention'] }, 'one entry for each of the 26 layers'],
    [
      'settings for layers that there are not',
      { rope_parameters: { other: {} } },
      'rope_parameters: other: expected only',
    ],
  ])('refuses %s', (_, keys, message) => {
    expect(() => parse(keys)).toThrow(message);
  });

  it('makes a new model', () => {
    const init = {
      ...{ model_type: 'gemma3_text', hidden_size: 16, intermediate_size: 24, num_hidden_layers: 7 },
      ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, sliding_window: 4 },
    };
    const config = newModelConfig(init, { vocabSize: 40 }) as GemmaConfig;
    expect(config.slidingWindow).toEqual([4, 4, 4, 4, 4, undefined, 4]);
  });

  it('frees what its layers compute', async () => {
    const decoder = await loadDecoder(device, goldenPath('variants/gemma3-untied'), { dtype: 'f32' });
    decoder.prepare(3);
    await device.synchronize();
    const held = device.stats().liveBytes;
    const batch = raggedBatch(device, [{ ids: [5, 6, 7] }], decoder.config);
    device.scope(() => void decoder.forward(batch));
    batch.dispose();
    await device.synchronize();
    expect(device.stats().liveBytes).toBe(held);
    decoder.dispose();
  });

  it('adds 1 to the norms of a checkpoint, and takes it off again where it writes one', async () => {
    const directory = temporaryDirectory();
    cpSync(goldenPath('variants/gemma3-untied'), directory, { recursive: true });
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const name = 'model.layers.1.post_feedforward_layernorm.weight';
    const stored = openSafetensors(join(directory, 'model.safetensors'));
    const held = await readWeight(decoder, name);
    expect([...held]).toEqual(Array.from(readStoredF32(stored, name), (value) => Math.fround(value + 1)));
    const saved = join(temporaryDirectory(), 'saved');
    await saveDecoder(decoder, saved);
    const written = openSafetensors(join(saved, 'model.safetensors'));
    expect([...written.tensors.keys()].sort()).toEqual([...stored.tensors.keys()].sort());
    for (const tensor of stored.tensors.keys()) {
      const [found, wanted] = [readStoredF32(written, tensor), readStoredF32(stored, tensor)];
      // Adding 1 rounds.
      expect(
        Math.max(...found.map((value, i) => Math.abs(value - (wanted[i] as number)))),
        tensor,
      ).toBeLessThan(1e-7);
    }
    const config = JSON.parse(readFileSync(join(saved, 'config.json'), 'utf8'));
    expect(config).toMatchObject({ model_type: 'gemma3_text', hidden_activation: 'gelu_pytorch_tanh' });
    for (const file of [stored, written]) file.close();
    decoder.dispose();
  });
});
