// OPT beyond its golden values: configuration, limits, new models, and heads on a projected trunk.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import type { OptConfig } from '../../src/architectures/opt.js';
import { countParameters, modelConfigJson, parseModelConfig } from '../../src/architectures/table.js';
import type { LoraConfig } from '../../src/config/schema.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { StepAmcRunConfig } from '../../src/methods/stepamc/config.js';
import { createStepAmcRoles } from '../../src/methods/stepamc/roles.js';
import { raggedBatch } from '../../src/models/batch.js';
import { headRows, roleHead, scalarOutputs } from '../../src/models/heads.js';
import { loadDecoder } from '../../src/models/load.js';
import { embedding } from '../../src/ops/embedding.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { createTrainee } from '../../src/train/roles/trainee.js';
import type { JsonObject } from '../../src/weights/json.js';
import { changedModel } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const device = openTest();
afterAll(() => device.dispose());

const golden = (name: string) =>
  JSON.parse(readFileSync(join(goldenDirectory(name), 'config.json'), 'utf8')) as JsonObject;
const parse = (json: object) => parseModelConfig(json as JsonObject, 'config.json') as OptConfig;
const SIZES = {
  model_type: 'opt',
  hidden_size: 24,
  num_hidden_layers: 1,
  num_attention_heads: 3,
  ffn_dim: 20,
  vocab_size: 37,
};

describe('config.json', () => {
  it('is read', () => {
    expect(parse(golden('opt'))).toMatchObject({
      modelType: 'opt',
      head: { kind: 'causal' },
      hiddenSize: 64,
      outputSize: 64,
      ffnSize: 128,
      numHeads: 4,
      maxPositions: 128,
      activation: 'relu',
      normFirst: true,
      withoutFinalNorm: false,
      bias: true,
      affine: true,
      tieWordEmbeddings: true,
      initializerRange: 0.02,
    });
    expect(parse(golden('variants/opt-norm-last'))).toMatchObject({ outputSize: 16, normFirst: false });
  });

  it('has the defaults of transformers for absent keys', () => {
    expect(parse(SIZES)).toMatchObject({
      maxPositions: 2048,
      outputSize: 24,
      activation: 'relu',
      normFirst: true,
      bias: true,
      affine: true,
      tieWordEmbeddings: true,
      bosTokenId: 2,
      eosTokenIds: [2],
      padTokenId: 1,
    });
  });

  it.each(['opt', 'variants/opt-norm-last', 'variants/opt-plain', 'variants/opt-untied'])(
    'is read back equal after being written: %s',
    (name) => {
      const { source: _, ...expected } = parse(golden(name));
      const { source: written, ...found } = parse(modelConfigJson(parse(golden(name))));
      expect(found).toEqual(expected);
      expect(written).toMatchObject(golden(name));
    },
  );

  it('may name the dropout of the training, which is ignored', () => {
    expect(parse({ ...SIZES, dropout: 0.1, layerdrop: 0, prefix: '</s>' }).source).toMatchObject({
      dropout: 0.1,
    });
  });

  it.each<[string, object, string]>([
    [
      'another activation',
      { activation_function: 'gelu_new' },
      "activation_function: expected 'relu' or 'gelu'; other activations are not supported, found \"gelu_new\"",
    ],
    ['layers left out', { layerdrop: 0.1 }, 'layerdrop: expected 0 (leaving out layers is not supported)'],
    ['dropout in the MLP', { activation_dropout: 0.1 }, 'activation_dropout: expected 0 (dropout inside'],
    ['dropout in attention', { attention_dropout: 0.1 }, 'attention_dropout: expected 0 (dropout inside'],
    [
      'heads that do not divide',
      { num_attention_heads: 5 },
      'hidden_size: expected a multiple of num_attention',
    ],
    ['a missing width', { ffn_dim: null }, 'ffn_dim: expected an integer from 1'],
    ['a key of other models', { rope_theta: 1e4 }, "expected only known keys, found 'rope_theta: 10000'"],
    [
      'a head that transformers does not have',
      { architectures: ['OPTForTokenClassification'] },
      'architectures: expected one of OPTForCausalLM, OPTForSequenceClassification',
    ],
  ])('is refused with %s', (_, keys, message) => {
    expect(() => parse({ ...SIZES, ...keys })).toThrow(`config.json: ${message}`);
  });
});

test('`first` shifts the rows of an embedding', async () => {
  const table = device.tensor(random(6 * 4), [6, 4]);
  const ids = device.tensor(Int32Array.from([3, 0]));
  const y = embedding(ids, { name: 'table', value: table }, 'f32', 2);
  const values = await table.readFloats();
  expect(await y.readFloats()).toEqual(Float32Array.from([...values.slice(20, 24), ...values.slice(8, 12)]));
  for (const tensor of [table, ids, y]) tensor.dispose();
});

test('a sequence longer than max_position_embeddings is refused', async () => {
  const model = await loadModel(device, goldenDirectory('opt'), { dtype: 'f32' });
  const ids = Array.from({ length: 128 }, (_, t) => t);
  expect((await model.score([ids]))[0]?.logprobs).toHaveLength(127);
  await expect(model.score([[...ids, 5]])).rejects.toThrow(
    'score: sequence 0 has 129 tokens, and the model reads at most 128 (max_position_embeddings); shorten it',
  );
  const batch = raggedBatch(device, [{ ids: [1], positions: [128] }], { vocabSize: 320, maxPositions: 600 });
  expect(() => model.decoder.forward(batch)).toThrow(
    'the batch has position 128, and the model reads at most 128 (max_position_embeddings)',
  );
  batch.dispose();
  model.dispose();
});

test('sequence classification reads the last token', async () => {
  const score = random(3 * 64, 7);
  const directory = await changedModel('opt', {
    config: (json) => ({ ...json, architectures: ['OPTForSequenceClassification'], num_labels: 3 }),
    add: { 'score.weight': { shape: [3, 64], values: [...score] } },
  });
  const model = await loadModel(device, directory, { dtype: 'f32' });
  const causal = await loadDecoder(device, goldenDirectory('opt'), { dtype: 'f32' });
  const batch = raggedBatch(device, [{ ids: [7, 8, 9] }], causal.config);
  const hidden = causal.forward(batch);
  const last = (await hidden.readFloats()).slice(2 * 64);
  const [found] = await model.classify([[7, 8, 9]]);
  for (const [label, logit] of found!.logits[0]!.entries()) {
    const row = score.slice(64 * label, 64 * (label + 1));
    expect(logit).toBeCloseTo(
      row.reduce((sum, weight, i) => sum + weight * last[i]!, 0),
      4,
    );
  }
  for (const owned of [model, causal, batch, hidden]) owned.dispose();
});

test('policy, value and reward heads read the projected hidden states', async () => {
  const { model, lora, run } = completeRunConfig({
    method: 'stepamc',
    model: { base: goldenDirectory('variants/opt-norm-last') },
    lora: { r: 2, lora_alpha: 4 },
    data: { source: 'arithmetic' },
  }) as StepAmcRunConfig;
  const gradientCheckpointing = run.gradient_checkpointing === true;
  const roles = await createStepAmcRoles(device, {
    model,
    lora: lora as LoraConfig,
    seed: 3,
    gradientCheckpointing,
  });
  const { decoder } = roles;
  const batch = raggedBatch(device, [{ ids: [1, 2, 3] }, { ids: [4, 5] }], decoder.config);
  const { values, reward } = device.scope(() => ({
    values: scalarOutputs(decoder.forward(batch, roles.policy), roles.valueHead),
    reward: scalarOutputs(
      decoder.forward(batch, roles.reward),
      roleHead(decoder, roles.reward)!,
      headRows(device, batch, roleHead(decoder, roles.reward)!),
    ),
  }));
  expect(roles.valueHead.weight.value.shape).toEqual([1, 16]);
  expect([...(await values.readFloats())].every(Number.isFinite)).toBe(true);
  expect(await reward.readFloats()).toHaveLength(2);
  expect(roles.policyParameters.list.map(({ name }) => name)).toContain(
    'base_model.model.model.decoder.project_out.lora_A.weight',
  );
  for (const owned of [values, reward, batch, roles]) owned.dispose();
});

describe('a new model', () => {
  const { num_hidden_layers, vocab_size, ...shape } = SIZES;
  const create = (keys: object) => {
    const base = { init: { ...shape, num_hidden_layers: 2, ...keys } };
    const section = { tokenizer: 'bytes', base };
    const { model } = completeRunConfig({
      method: 'pretrain',
      data: { source: 'arithmetic' },
      model: section,
    });
    const options = {
      lora: 'none',
      tokenizer: byteTokenizer(),
      seed: 5,
      gradientCheckpointing: false,
    } as const;
    return createTrainee(device, { model, ...options });
  };

  it('starts from normal weights, norms of 1 and biases of 0, and loads as it was saved', async () => {
    const { decoder, trained, ...trainee } = await create({ init_std: 0.1, word_embed_proj_dim: 40 });
    expect(trained.size).toBe(countParameters(decoder.config));
    for (const { name, value } of trained.list) {
      const values = await value.readFloats();
      const constant = /norm\.weight$/.test(name) ? 1 : /bias$/.test(name) ? 0 : undefined;
      const square = values.reduce((sum, x) => sum + x * x, 0) / values.length;
      if (constant === undefined) expect(Math.abs(Math.sqrt(square) / 0.1 - 1), name).toBeLessThan(0.2);
      else expect(new Set(values), name).toEqual(new Set([constant]));
    }
    const folder = temporaryDirectory();
    await trainee.save((name) => join(folder, name));
    const again = await loadDecoder(device, join(folder, 'model'), { dtype: 'f32' });
    const { source: _, ...found } = again.config;
    const { source: __, ...expected } = decoder.config;
    expect(found).toEqual({ ...expected, dtype: 'float32' });
    trainee.dispose();
    again.dispose();
  });

  it('is refused with keys of other models, or with a size that its heads do not divide', async () => {
    expect(() => create({ rope_theta: 1e4 })).toThrow(
      'model.base.init.rope_theta is for model_type "qwen2" or "qwen3" or "qwen3_moe" or "llama" or "mistral"',
    );
    expect(() => create({ num_attention_heads: 5 })).toThrow(
      'hidden_size (24) must be a multiple of num_attention_heads (5)',
    );
    expect(() => create({ model_type: 'qwen3' })).toThrow(/init\.ffn_dim is for model_type "opt"/);
    expect(() => create({ model_type: 'gpt2' })).toThrow(
      'model.base.init.model_type expects one of qwen2, qwen3, qwen3_moe, llama, mistral, smollm3, gemma3_text, qwen3_5_text, qwen3_5_moe_text, opt or deberta-v2, found the text "gpt2"',
    );
  });
});
