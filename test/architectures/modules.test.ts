import { describe, expect, it } from 'vitest';
import {
  countParameters,
  matchOptions,
  modelModules,
  modelWeights,
  parseModelConfig,
  readModelConfig,
} from '../../src/architectures/table.js';
import { matchWeights, openCheckpoint } from '../../src/weights/checkpoint.js';
import { MODELS } from '../models/golden.js';
import { goldenPath } from '../weights/golden.js';

const SIZES = {
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 10,
};
const shapes = (json: Record<string, string | number | boolean | string[]>) =>
  Object.fromEntries(
    modelWeights(parseModelConfig(json, 'config.json')).map(({ name, shape }) => [name, shape]),
  );

describe('modelWeights', () => {
  it.each(MODELS)('lists what the checkpoint of %s holds', (model) => {
    const config = readModelConfig(goldenPath(model));
    const checkpoint = openCheckpoint(goldenPath(model));
    const weights = modelWeights(config);
    const found = matchWeights(checkpoint, weights, matchOptions(config));
    expect(found.map(({ name }) => name)).toEqual(weights.map(({ name }) => name));
    expect(new Set(found.map(({ name }) => name))).toEqual(new Set(checkpoint.tensors.keys()));
    expect(found.reduce((sum, { bytes }) => sum + bytes / 4, 0)).toBe(countParameters(config));
    checkpoint.close();
  });

  it('lists the biases of each model', () => {
    const biases = (json: Record<string, string | number | boolean>) =>
      Object.keys(shapes({ ...SIZES, ...json }))
        .filter((name) => name.endsWith('.bias'))
        .map((name) => name.split('.').at(-2));
    expect(biases({ model_type: 'qwen2' })).toEqual(['q_proj', 'k_proj', 'v_proj']);
    expect(biases({ model_type: 'qwen3', head_dim: 4, attention_bias: true })).toEqual([
      'q_proj',
      'k_proj',
      'v_proj',
      'o_proj',
    ]);
    expect(biases({ model_type: 'llama', mlp_bias: true })).toEqual(['gate_proj', 'up_proj', 'down_proj']);
    expect(biases({ model_type: 'mistral' })).toEqual([]);
  });

  it('lists a score instead of a head for classification', () => {
    const token = shapes({
      ...SIZES,
      model_type: 'qwen2',
      architectures: ['Qwen2ForTokenClassification'],
      num_labels: 3,
    });
    expect(token).toMatchObject({ 'score.weight': [3, 8], 'score.bias': [3] });
    expect(token).not.toHaveProperty(['lm_head.weight']);
    const sequence = shapes({
      ...SIZES,
      model_type: 'qwen2',
      architectures: ['Qwen2ForSequenceClassification'],
    });
    expect(sequence).toMatchObject({ 'score.weight': [2, 8] });
    expect(sequence).not.toHaveProperty(['score.bias']);
  });

  it('keeps a tied head as a module without weights', () => {
    const config = parseModelConfig(
      { ...SIZES, model_type: 'llama', tie_word_embeddings: true },
      'config.json',
    );
    const head = modelModules(config).find(({ name }) => name === 'lm_head');
    expect(head).toMatchObject({ kind: 'head', weights: [], shape: [10, 8] });
  });
});
