import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { className } from '../../src/architectures/heads.js';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import { modelConfigJson, parseModelConfig, readModelConfig } from '../../src/architectures/table.js';
import { type JsonObject, parseJson } from '../../src/weights/json.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const golden = (model: string): Record<string, unknown> =>
  JSON.parse(readFileSync(new URL(`../golden/${model}/config.json`, import.meta.url), 'utf8'));
const parse = (json: Record<string, unknown>) =>
  parseModelConfig(json as JsonObject, 'config.json') as LlamaConfig;

const MODELS = ['qwen2', 'qwen3', 'llama3', 'mistral', 'stories260k'] as const;
const SIZES = {
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 32,
  vocab_size: 320,
};

describe('parseModelConfig', () => {
  it.each<[string, Record<string, unknown>, number]>([
    [
      'yarn at its original length',
      { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 },
      512,
    ],
    ['yarn without an original length', { type: 'yarn', factor: 4 }, 512],
    ['linear', { rope_type: 'linear', factor: 2 }, 256],
    ['dynamic, refused beyond', { rope_type: 'dynamic', factor: 2 }, 128],
    [
      'llama3, whose files have the scaled length',
      { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      128,
    ],
  ])('reads as many tokens as the rope is scaled to: %s', (_, rope_scaling, longest) => {
    const written = { model_type: 'qwen2', ...SIZES, max_position_embeddings: 128, rope_scaling };
    const config = parse(written);
    expect(config.maxPositions).toBe(longest);
    // What is saved is read as the same model, and says what the file said.
    const json = modelConfigJson(config);
    expect(json.max_position_embeddings).toBe(128);
    expect(parse(json).maxPositions).toBe(longest);
    // A file that has the scaled length already is not scaled twice.
    if (rope_scaling.original_max_position_embeddings !== undefined)
      expect(parse({ ...written, max_position_embeddings: 512 }).maxPositions).toBe(512);
  });

  it('reads the golden models', () => {
    const [qwen2, qwen3, llama, mistral, stories] = MODELS.map((model) => parse(golden(model)));
    expect(qwen2).toMatchObject({
      modelType: 'qwen2',
      head: { kind: 'causal' },
      hiddenSize: 64,
      intermediateSize: 128,
      numLayers: 2,
      numHeads: 4,
      numKeyValueHeads: 2,
      headDim: 16,
      vocabSize: 320,
      maxPositions: 512,
      rmsNormEps: 1e-6,
      rope: { headDim: 16, theta: 1e6, scaling: { type: 'default' } },
      tieWordEmbeddings: true,
      qkvBias: true,
      outputBias: false,
      mlpBias: false,
      qkNorm: false,
      slidingWindow: [undefined, undefined],
      dtype: 'float32',
      bosTokenId: undefined,
      eosTokenIds: [],
      padTokenId: undefined,
    });
    expect(qwen3).toMatchObject({
      headDim: 32,
      qkNorm: true,
      qkvBias: false,
      outputBias: false,
      tieWordEmbeddings: false,
    });
    expect(llama).toMatchObject({
      rope: {
        theta: 500000,
        scaling: { type: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 16 },
      },
      bosTokenId: 1,
      eosTokenIds: [2],
      qkvBias: false,
    });
    expect(mistral).toMatchObject({ slidingWindow: [8, 8], headDim: 16, tieWordEmbeddings: false });
    expect(stories).toMatchObject({
      numHeads: 8,
      numKeyValueHeads: 4,
      headDim: 8,
      rmsNormEps: 1e-5,
      tieWordEmbeddings: true,
    });
  });

  /** Its positions in the spelling of transformers 4. */
  function older(model: string, typeKey: 'type' | 'rope_type') {
    const { rope_parameters, ...rest } = golden(model) as Record<string, JsonObject>;
    const { rope_theta, rope_type, ...scaling } = rope_parameters as Record<string, number | string>;
    return {
      ...rest,
      rope_theta,
      rope_scaling: rope_type === 'default' ? null : { [typeKey]: rope_type, ...scaling },
    };
  }

  it.each(MODELS)('reads the same model from the older spelling of %s', (model) => {
    const { dtype, ...rest } = older(model, 'type') as Record<string, unknown>;
    const { source: _, ...found } = parse({ ...rest, torch_dtype: dtype });
    const { source: __, ...expected } = parse(golden(model));
    expect(found).toEqual(expected);
  });

  it.each(MODELS)('writes a configuration that is read back equal: %s', (model) => {
    const { source: _, ...expected } = parse(golden(model));
    const { source: written, ...found } = parse(
      modelConfigJson(parse(golden(model))) as Record<string, unknown>,
    );
    expect(found).toEqual(expected);
    // transformers 4 does not know the newer one, and takes its defaults.
    expect(written).not.toHaveProperty('rope_parameters');
    expect(written).toMatchObject(older(model, 'rope_type'));
  });

  it('uses the defaults of transformers for absent keys', () => {
    expect(parse({ model_type: 'llama', ...SIZES })).toMatchObject({
      numKeyValueHeads: 32,
      headDim: 2,
      maxPositions: 2048,
      rope: { theta: 10000 },
      bosTokenId: 1,
      eosTokenIds: [2],
      tieWordEmbeddings: false,
      rmsNormEps: 1e-6,
      dtype: undefined,
    });
    expect(parse({ model_type: 'qwen3', ...SIZES })).toMatchObject({
      headDim: 128,
      maxPositions: 32768,
      eosTokenIds: [],
    });
    expect(parse({ model_type: 'mistral', ...SIZES })).toMatchObject({
      numKeyValueHeads: 8,
      maxPositions: 131072,
      slidingWindow: [4096, 4096, 4096, 4096],
    });
    expect(parse({ model_type: 'mistral', ...SIZES, num_key_value_heads: null }).numKeyValueHeads).toBe(32);
    expect(
      parse({ model_type: 'llama', ...SIZES, eos_token_id: [7, 9], bos_token_id: null, pad_token_id: -1 }),
    ).toMatchObject({
      eosTokenIds: [7, 9],
      bosTokenId: undefined,
      padTokenId: undefined,
    });
  });

  it.each<[string, Record<string, unknown>, (number | undefined)[]]>([
    [
      'no window without use_sliding_window',
      { sliding_window: 16, max_window_layers: 0 },
      [undefined, undefined, undefined, undefined],
    ],
    [
      'the layers from max_window_layers on',
      { use_sliding_window: true, sliding_window: 16, max_window_layers: 3 },
      [undefined, undefined, undefined, 16],
    ],
    [
      'none when max_window_layers is absent (28)',
      { use_sliding_window: true, sliding_window: 16 },
      [undefined, undefined, undefined, undefined],
    ],
    [
      'a window of 4096 when it is absent',
      { use_sliding_window: true, max_window_layers: 3 },
      [undefined, undefined, undefined, 4096],
    ],
    [
      'none when the window is null',
      { use_sliding_window: true, sliding_window: null, max_window_layers: 0 },
      [undefined, undefined, undefined, undefined],
    ],
    [
      'the layers that layer_types names',
      {
        use_sliding_window: true,
        sliding_window: 16,
        layer_types: ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'],
      },
      [16, undefined, 16, undefined],
    ],
  ])('windows qwen2: %s', (_, keys, expected) => {
    expect(parse({ model_type: 'qwen2', ...SIZES, ...keys }).slidingWindow).toEqual(expected);
  });

  it('reads classification heads', () => {
    const sequence = parse({
      model_type: 'qwen2',
      ...SIZES,
      architectures: ['Qwen2ForSequenceClassification'],
      id2label: { '0': 'LABEL_0' },
    });
    expect(sequence.head).toEqual({ kind: 'sequence', numLabels: 1, labels: ['LABEL_0'] });
    const token = parse({ model_type: 'llama', ...SIZES, architectures: ['LlamaForTokenClassification'] });
    expect(token.head).toEqual({ kind: 'token', numLabels: 2, labels: undefined, bias: true, dropout: 0.1 });
    expect(className(token)).toBe('LlamaForTokenClassification');
    expect(modelConfigJson(token)).toMatchObject({
      architectures: ['LlamaForTokenClassification'],
      id2label: { '0': 'LABEL_0', '1': 'LABEL_1' },
      label2id: { LABEL_0: 0, LABEL_1: 1 },
    });
  });

  it('accepts keys that do not change the maths', () => {
    const keys = {
      _name_or_path: 'somewhere',
      transformers_version: '4.43.1',
      use_cache: false,
      temperature: 0.7,
      pretraining_tp: 1,
      use_mrope: false,
      rope_interleaved: false,
      embd_pdrop: 0.0,
      quantization_config: null,
      auto_map: {},
      unsloth_fixed: true,
      _model_name_or_path: 'somewhere',
      _flash_attn_2_enabled: true,
    };
    expect(parse({ model_type: 'llama', ...SIZES, ...keys }).hiddenSize).toBe(64);
  });

  it.each<[string, Record<string, unknown>, string | RegExp]>([
    [
      'an unsupported model',
      { model_type: 'gpt2' },
      'model_type: expected one of qwen2, qwen3, qwen3_moe, llama, mistral, smollm3, gemma3_text, qwen3_5_text, qwen3_5, qwen3_5_moe_text, qwen3_5_moe, opt, deberta-v2, found "gpt2"',
    ],
    ['Gemma 2', { model_type: 'gemma2' }, /found "gemma2"; Gemma 2 caps the scores .* take a Gemma 3$/],
    ['Qwen3-Next', { model_type: 'qwen3_next' }, /found "qwen3_next"; Qwen3-Next joins .* take a Qwen3\.5$/],
    [
      'more experts for a token than there are',
      { model_type: 'qwen3_5_moe_text', num_experts: 4, num_experts_per_tok: 5 },
      'num_experts_per_tok: expected at most num_experts (4)',
    ],
    [
      'a Qwen3.5 that sees without its text model',
      { model_type: 'qwen3_5_moe' },
      'text_config: expected an object with the keys of the text model, found nothing',
    ],
    [
      'Gemma 4',
      { model_type: 'gemma4_text' },
      /found "gemma4_text"; Gemma 4 gives each layer .* take a Gemma 3$/,
    ],
    [
      'gpt-oss',
      { model_type: 'gpt_oss' },
      /found "gpt_oss"; gpt-oss has sinks in its attention, .* take a Qwen3$/,
    ],
    [
      'layers of Qwen3.5 of another kind',
      { model_type: 'qwen3_5_text', layer_types: Array(4).fill('sliding_attention') },
      "layer_types: expected only full_attention and linear_attention ('sliding_attention' is not supported)",
    ],
    [
      'a rotation of an odd part',
      { model_type: 'qwen3_5_text', head_dim: 12, rope_parameters: { partial_rotary_factor: 0.25 } },
      'partial_rotary_factor: expected a part of head_dim (12) that is an even number',
    ],
    [
      'attention without its gate',
      { model_type: 'qwen3_5_text', attn_output_gate: false },
      'attn_output_gate: expected true (attention without its gate is not supported), found false',
    ],
    ['a missing model_type', { model_type: undefined }, 'model_type: expected one of'],
    [
      'another activation',
      { hidden_act: 'gelu' },
      'hidden_act: expected \'silu\'; other activations are not supported, found "gelu"',
    ],
    [
      'attention dropout',
      { attention_dropout: 0.1 },
      'attention_dropout: expected 0 (dropout inside attention is not supported), found 0.1',
    ],
    [
      'quantised weights',
      { quantization_config: { bits: 4 } },
      'quantization_config: expected a method whose weights are read',
    ],
    ['partial rotation', { partial_rotary_factor: 0.5 }, 'partial_rotary_factor: expected 1'],
    ['tensor-parallel pretraining', { pretraining_tp: 2 }, 'pretraining_tp: expected 1'],
    [
      'code beside the model',
      { auto_map: { AutoModel: 'modeling.Model' } },
      'auto_map: expected nothing (code that comes with a model is never run)',
    ],
    [
      'unknown keys, all of them',
      { foo: 3, bar: 'x' },
      `expected only known keys, found 'foo: 3', 'bar: "x"'`,
    ],
    [
      'an unknown architecture',
      { architectures: ['LlamaForProcessRewardModel'] },
      'architectures: expected one of LlamaForCausalLM, LlamaForSequenceClassification, LlamaForTokenClassification, found ["LlamaForProcessRewardModel"]',
    ],
    [
      'two architectures',
      { architectures: ['LlamaForCausalLM', 'LlamaForTokenClassification'] },
      'architectures: expected one of',
    ],
    [
      'a missing size',
      { hidden_size: undefined },
      'hidden_size: expected an integer from 1 to 2147483647, found nothing',
    ],
    [
      'a fractional size',
      { hidden_size: 64.5 },
      'hidden_size: expected an integer from 1 to 2147483647, found 64.5',
    ],
    [
      'a size that is text',
      { hidden_size: '64' },
      'hidden_size: expected an integer from 1 to 2147483647, found "64"',
    ],
    [
      'a huge number of layers',
      { num_hidden_layers: 2_000_000_000 },
      'num_hidden_layers: expected an integer from 1 to 10000',
    ],
    [
      'heads that do not divide the width',
      { num_attention_heads: 48, num_key_value_heads: 48 },
      'hidden_size: expected a multiple of num_attention_heads (48)',
    ],
    [
      'key/value heads that do not divide the heads',
      { num_key_value_heads: 5 },
      'num_key_value_heads: expected a divisor of num_attention_heads (32)',
    ],
    ['an odd head', { head_dim: 7 }, 'head_dim: expected an even number'],
    [
      'a window for llama',
      { sliding_window: 8 },
      'sliding_window: expected nothing (llama has no sliding window), found 8',
    ],
    ['a bias in the MLP of mistral', { model_type: 'mistral', mlp_bias: true }, 'mlp_bias: expected false'],
    [
      'attention bias in mistral',
      { model_type: 'mistral', attention_bias: true },
      `found 'attention_bias: true'`,
    ],
    [
      'qwen2 without biases',
      { model_type: 'qwen2', attention_bias: false },
      'attention_bias: expected nothing (qwen2 always has biases on q, k and v)',
    ],
    [
      'layer_types of another length',
      { model_type: 'qwen2', layer_types: ['full_attention'] },
      'layer_types: expected one entry for each of the 4 layers',
    ],
    [
      'linear attention',
      { model_type: 'qwen2', layer_types: Array(4).fill('linear_attention') },
      "layer_types: expected only full_attention and sliding_attention ('linear_attention' is not supported)",
    ],
    [
      'a windowed layer without a window',
      { model_type: 'qwen2', layer_types: Array(4).fill('sliding_attention') },
      'layer_types: expected only full_attention without use_sliding_window',
    ],
    [
      'mixed layers of mistral',
      { model_type: 'mistral', layer_types: Array(4).fill('full_attention') },
      'layer_types: expected only sliding_attention',
    ],
    [
      'an unknown dtype',
      { torch_dtype: 'float8' },
      'torch_dtype: expected one of float32, bfloat16, float16, found "float8"',
    ],
    [
      'a string for a flag',
      { tie_word_embeddings: 'yes' },
      'tie_word_embeddings: expected true or false, found "yes"',
    ],
    [
      'labels with a gap',
      { architectures: ['LlamaForTokenClassification'], id2label: { '0': 'a', '2': 'b' } },
      'id2label: 1: expected a label for each number from 0 on',
    ],
    [
      'label counts that disagree',
      { architectures: ['LlamaForTokenClassification'], num_labels: 3, id2label: { '0': 'a' } },
      'num_labels: expected as many as id2label has, 1, found 3',
    ],
  ])('refuses %s', (_, keys, message) => {
    const json = { model_type: 'llama', ...SIZES, ...keys };
    expect(() => parse(JSON.parse(JSON.stringify(json)))).toThrow(message);
    expect(() => parse(JSON.parse(JSON.stringify(json)))).toThrow(/^config\.json: /);
  });
});

describe('readModelConfig', () => {
  it('names the file', () => {
    const directory = temporaryDirectory();
    expect(() => readModelConfig(directory)).toThrow(
      `cannot read ${join(directory, 'config.json')}: no such file or directory`,
    );
    writeFileSync(join(directory, 'config.json'), '{"model_type": "llama",\n "model_type": "qwen2"}');
    expect(() => readModelConfig(directory)).toThrow(
      `${join(directory, 'config.json')}: line 2, column 2: the name "model_type" occurs twice`,
    );
    writeFileSync(
      join(directory, 'config.json'),
      readFileSync(new URL('../golden/qwen2/config.json', import.meta.url)),
    );
    expect(readModelConfig(directory).modelType).toBe('qwen2');
  });

  it('reads numbers in the form that Python writes', () => {
    const text = '{"a": 1e-06, "b": 10000.0, "c": -1, "d": 1E+5}';
    expect({ ...(parseJson(text, 'x') as JsonObject) }).toEqual({ a: 1e-6, b: 10000, c: -1, d: 100000 });
  });
});
