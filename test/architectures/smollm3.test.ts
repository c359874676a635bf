import { describe, expect, it } from 'vitest';
import { className } from '../../src/architectures/heads.js';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import { parseModelConfig } from '../../src/architectures/table.js';
import type { JsonObject } from '../../src/weights/json.js';

const parse = (keys: object) =>
  parseModelConfig(
    {
      model_type: 'smollm3',
      ...{
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 5,
        num_attention_heads: 8,
        vocab_size: 99,
      },
      ...keys,
    } as JsonObject,
    'config.json',
  ) as LlamaConfig;

describe('smollm3', () => {
  it('leaves every fourth layer without positions, and has the defaults of transformers', () => {
    const config = parse({});
    expect(config).toMatchObject({
      rotates: [true, true, true, false, true],
      slidingWindow: Array(5).fill(undefined),
      numKeyValueHeads: 4,
      headDim: 8,
      maxPositions: 32768,
      tieWordEmbeddings: true,
      bosTokenId: 128_000,
      eosTokenIds: [128_001],
      padTokenId: 128_004,
      rope: { theta: 2_000_000 },
      qkvBias: false,
    });
    expect(className(config)).toBe('SmolLM3ForCausalLM');
  });

  it('reads which layers are rotated, and windows those that are not', () => {
    expect(parse({ no_rope_layer_interval: 2 }).rotates).toEqual([true, false, true, false, true]);
    const named = parse({ no_rope_layers: [0, 1, 1, 1, 0], use_sliding_window: true, sliding_window: 7 });
    expect(named.rotates).toEqual([false, true, true, true, false]);
    expect(named.slidingWindow).toEqual([7, undefined, undefined, undefined, 7]);
    const typed = parse({
      layer_types: ['full_attention', 'sliding_attention', ...Array(3).fill('full_attention')],
      ...{ use_sliding_window: true, sliding_window: 7 },
    });
    expect(typed.slidingWindow).toEqual([undefined, 7, undefined, undefined, undefined]);
    expect(() => parse({ no_rope_layers: [1, 1] })).toThrow(
      'config.json: no_rope_layers: expected a 1 or 0 for each of the 5 layers, found [1,1]',
    );
    // Only smollm3 has such layers.
    expect(() => parse({ model_type: 'llama', no_rope_layers: [1, 1, 1, 1, 0] })).toThrow(/no_rope_layers/);
  });

  it('passes over keys of the released file that compute nothing', () => {
    expect(() => parse({ pretraining_tp: 2, max_window_layers: 28 })).not.toThrow();
  });
});
