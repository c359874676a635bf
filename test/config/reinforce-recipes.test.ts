// The recipes of reinforcement learning from a reward model on servers: their dry run with the config.json of the real models.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { countParameters, parseModelConfig } from '../../src/architectures/table.js';
import { formatRunConfig, loadRunConfig } from '../../src/methods/config.js';
import { methodOf, type RunConfig } from '../../src/methods/table.js';
import { writeCard } from '../../src/models/card.js';
import { describeRun } from '../../src/train/plan/dry-run.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const GIB = 2 ** 30;

/** What the small models of Qwen2.5 share. */
const QWEN2_5 = {
  architectures: ['Qwen2ForCausalLM'],
  model_type: 'qwen2',
  hidden_act: 'silu',
  initializer_range: 0.02,
  max_position_embeddings: 32768,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000,
  sliding_window: 32768,
  use_sliding_window: false,
  tie_word_embeddings: true,
  vocab_size: 151936,
  bos_token_id: 151643,
  eos_token_id: 151645,
};

/** As in their repositories. */
const MODELS = {
  'opt-1.3b': {
    architectures: ['OPTForCausalLM'],
    model_type: 'opt',
    activation_function: 'relu',
    attention_dropout: 0,
    bos_token_id: 2,
    do_layer_norm_before: true,
    dropout: 0.1,
    eos_token_id: 2,
    ffn_dim: 8192,
    hidden_size: 2048,
    init_std: 0.02,
    max_position_embeddings: 2048,
    num_attention_heads: 32,
    num_hidden_layers: 24,
    pad_token_id: 1,
    vocab_size: 50272,
    word_embed_proj_dim: 2048,
  },
  'qwen2.5-1.5b': {
    ...QWEN2_5,
    hidden_size: 1536,
    intermediate_size: 8960,
    num_attention_heads: 12,
    num_hidden_layers: 28,
  },
  'qwen2.5-0.5b': {
    ...QWEN2_5,
    hidden_size: 896,
    intermediate_size: 4864,
    num_attention_heads: 14,
    num_hidden_layers: 24,
  },
  'deberta-v3-large': {
    architectures: ['DebertaV2ForTokenClassification'],
    model_type: 'deberta-v2',
    attention_probs_dropout_prob: 0.1,
    hidden_act: 'gelu',
    hidden_dropout_prob: 0.1,
    hidden_size: 1024,
    id2label: { 0: 'LABEL_0' },
    label2id: { LABEL_0: 0 },
    initializer_range: 0.02,
    intermediate_size: 4096,
    layer_norm_eps: 1e-7,
    max_position_embeddings: 512,
    max_relative_positions: -1,
    norm_rel_ebd: 'layer_norm',
    num_attention_heads: 16,
    num_hidden_layers: 24,
    pad_token_id: 0,
    pooler_dropout: 0,
    pooler_hidden_act: 'gelu',
    pooler_hidden_size: 1024,
    pos_att_type: ['p2c', 'c2p'],
    position_biased_input: false,
    position_buckets: 256,
    relative_attention: true,
    share_att_key: true,
    type_vocab_size: 0,
    vocab_size: 128100,
  },
};

const recipe = async (name: string, ...settings: string[]): Promise<RunConfig> =>
  (await loadRunConfig(fileURLToPath(new URL(`../../recipes/${name}.yaml`, import.meta.url)), settings))
    .config;

function written(folder: string, name: string, config: object): string {
  const directory = join(folder, name);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
  return directory;
}

describe.each([
  ['opt-1.3b', 1_315_758_080, 'deberta-v3-large', 'bf16\n'],
  ['qwen2.5-1.5b', 1_543_714_304, 'qwen2.5-0.5b', 'bf16, and an adapter'],
] as const)('%s learns from a reward model on PRM800K', (policy, parameters, judge, held) => {
  test('its dry run counts policy, critic, reward model, keys and values', async () => {
    const folder = temporaryDirectory();
    const base = written(folder, policy, MODELS[policy]);
    expect(countParameters(parseModelConfig(MODELS[policy], 'config.json'))).toBe(parameters);
    const problems = join(folder, 'problems');
    mkdirSync(problems);
    for (const group of ['gsm8k', 'math']) {
      const rows = Array.from({ length: 40 }, (_, i) =>
        JSON.stringify({ question: `${group}: ${i} + 1?`, answer: `#### ${i + 1}` }),
      );
      writeFileSync(join(problems, `${group}.jsonl`), rows.join('\n'));
    }
    const name = `${policy}_reinforce_prm800k`;
    const settings = [`model.base=${base}`, `data.train=${problems}`, 'run.device=cpu'];
    const plan = async (...more: string[]) => {
      const config = await recipe(name, ...settings, ...more);
      const method = methodOf(config);
      const described = await describeRun({ ...method, ...(await method.load()) }, config, {
        planFor: 80 * GIB,
      });
      return described.lines.join('\n');
    };
    // Before the reward model is trained.
    expect(await plan()).toMatch(
      new RegExp(`PRM +0\\.0 MiB  runs/${judge}_prm_prm800k is not there yet and not counted`),
    );

    const reward = await recipe(`${judge}_prm_prm800k`, 'data.train=file.jsonl');
    if (reward.method !== 'reward') throw new Error('expected a recipe of a reward model');
    const run = join(folder, 'judge');
    const trained = reward.lora === 'none' ? 'judge/model' : 'judge/base';
    const model = written(folder, trained, MODELS[judge]);
    const { dtype } = reward.model;
    if (reward.lora === 'none') await writeCard(model, { method: 'reward', dtype });
    else {
      const adapter = join(run, 'adapter');
      mkdirSync(adapter, { recursive: true });
      writeFileSync(join(adapter, 'adapter_model.safetensors'), 'x'.repeat(1000));
      writeFileSync(join(adapter, 'adapter_config.json'), '{}');
      await writeCard(adapter, { method: 'reward', base: model, dtype });
    }
    const config = { ...reward, model: { ...reward.model, base: reward.lora === 'none' ? 'gone' : model } };
    writeFileSync(join(run, 'config.yaml'), formatRunConfig(config as RunConfig, { head: 'A run.' }));
    const lines = await plan(`reward.steps.model=${run}`);
    expect(lines).toMatch(/ {2}base +[\d.]+ GiB .*frozen parameters, bf16/);
    for (const role of ['policy', 'critic']) expect(lines).toMatch(new RegExp(`  ${role} +[\\d.]+ MiB`));
    expect(lines).toMatch(new RegExp(`  PRM +[5-9]\\d\\d\\.\\d MiB  [\\d.]+M frozen parameters, (${held})`));
    expect(lines).not.toMatch(/does not fit/);
  });
});
