import { describe, expect, it } from 'vitest';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import {
  countParameters,
  modelConfigJson,
  modelModules,
  newModelConfig,
  newModelConflicts,
  parseModelConfig,
} from '../../src/architectures/table.js';
import type { JsonObject } from '../../src/weights/json.js';

/** As Qwen/Qwen3-30B-A3B has it. */
const RELEASED = {
  architectures: ['Qwen3MoeForCausalLM'],
  attention_bias: false,
  attention_dropout: 0,
  bos_token_id: 151643,
  decoder_sparse_step: 1,
  eos_token_id: 151645,
  head_dim: 128,
  hidden_act: 'silu',
  hidden_size: 2048,
  initializer_range: 0.02,
  intermediate_size: 6144,
  max_position_embeddings: 40960,
  max_window_layers: 48,
  mlp_only_layers: [],
  model_type: 'qwen3_moe',
  moe_intermediate_size: 768,
  norm_topk_prob: true,
  num_attention_heads: 32,
  num_experts: 128,
  num_experts_per_tok: 8,
  num_hidden_layers: 48,
  num_key_value_heads: 4,
  output_router_logits: false,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 1000000,
  router_aux_loss_coef: 0.001,
  sliding_window: null,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
  transformers_version: '4.51.0',
  use_cache: true,
  use_sliding_window: false,
  vocab_size: 151936,
};
const parse = (keys: object = {}) =>
  parseModelConfig({ ...RELEASED, ...keys } as JsonObject, 'config.json') as LlamaConfig;

describe('qwen3_moe', () => {
  it('reads the configuration of a released model, which has 30.5 billion parameters', () => {
    const config = parse();
    expect(config).toMatchObject({
      ...{ headDim: 128, numKeyValueHeads: 4, qkNorm: true, qkvBias: false },
      experts: { count: 128, perToken: 8, intermediateSize: 768, normalise: true },
    });
    expect(config.experts?.sparse).toEqual(Array(48).fill(true));
    expect(config.slidingWindow).toEqual(Array(48).fill(undefined));
    expect(countParameters(config)).toBe(30_532_122_624);
  });

  it('has the defaults of transformers', () => {
    const { num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob, head_dim, ...rest } =
      RELEASED;
    const config = parseModelConfig(rest as JsonObject, 'config.json') as LlamaConfig;
    expect(config.experts).toMatchObject({
      count: 128,
      perToken: 8,
      intermediateSize: 768,
      normalise: false,
    });
    expect(config.headDim).toBe(64);
  });

  it('has layers without experts by either key, or in all', () => {
    const sparse = (keys: object) => parse({ num_hidden_layers: 4, ...keys }).experts?.sparse;
    expect(sparse({ decoder_sparse_step: 2 })).toEqual([false, true, false, true]);
    expect(sparse({ mlp_only_layers: [0, 2] })).toEqual([false, true, false, true]);
    expect(sparse({ num_experts: 0 })).toEqual(Array(4).fill(false));
    const names = modelModules(parse({ num_hidden_layers: 2, mlp_only_layers: [0] })).map(({ name }) => name);
    expect(names).toContain('model.layers.0.mlp.up_proj');
    expect(names).not.toContain('model.layers.0.mlp.gate');
    expect(names).toContain('model.layers.1.mlp.experts.127.up_proj');
    expect(names).not.toContain('model.layers.1.mlp.up_proj');
  });

  it('reads the number of experts under both names', () => {
    const { num_experts: _, ...rest } = RELEASED;
    const both = parseModelConfig({ ...rest, num_local_experts: 16 } as JsonObject, 'config.json');
    expect((both as LlamaConfig).experts?.count).toBe(16);
    expect(modelConfigJson(both)).toMatchObject({ num_experts: 16 });
    expect(modelConfigJson(both)).not.toHaveProperty('num_local_experts');
    expect(() => parse({ num_local_experts: 16 })).toThrow(
      'config.json: num_local_experts: expected num_experts, 128, found 16',
    );
  });

  it('refuses more experts for a token than there are, and windows in some layers', () => {
    expect(() => parse({ num_experts: 4 })).toThrow(
      'config.json: num_experts_per_tok: expected at most num_experts (4), found 8',
    );
    expect(() => parse({ num_hidden_layers: 10_000, num_experts: 4096 })).toThrow(
      'config.json: num_experts: expected at most 262144 experts in 10000 layers together, found 4096',
    );
    const types = Array(48).fill('full_attention').with(3, 'sliding_attention');
    expect(() => parse({ layer_types: types })).toThrow(/layer_types: expected only full_attention/);
    expect(parse({ use_sliding_window: true, sliding_window: 9 }).slidingWindow).toEqual(Array(48).fill(9));
  });

  it('is made new with a few keys, and refuses those that contradict each other', () => {
    const init = {
      model_type: 'qwen3_moe',
      ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4 },
      num_experts: 8,
    };
    expect(newModelConfig(init, { vocabSize: 99 })).toMatchObject({
      experts: { count: 8, perToken: 2, intermediateSize: 48, normalise: true, sparse: [true, true] },
      numKeyValueHeads: 4,
    });
    const conflicts = (keys: object) => newModelConflicts({ ...init, ...keys }).map(({ message }) => message);
    expect(conflicts({})).toEqual([]);
    expect(conflicts({ num_experts: undefined })).toEqual(['model_type "qwen3_moe" needs num_experts']);
    expect(conflicts({ num_experts_per_tok: 9 })).toEqual([
      'num_experts_per_tok (9) must be at most num_experts (8)',
    ]);
    expect(conflicts({ model_type: 'qwen3' })).toEqual([
      'num_experts is for model_type "qwen3_moe", found "qwen3"',
    ]);
  });
});
