// The memory plans of the server recipes, with the shapes of their models, against the GPUs that they are for.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { modelWeights, parseModelConfig } from '../../src/architectures/table.js';
import { loadRunConfig } from '../../src/methods/config.js';
import { stepAmc } from '../../src/methods/stepamc/method.js';
import { methodOf } from '../../src/methods/table.js';
import type { Device } from '../../src/runtime/device.js';
import { describeRun } from '../../src/train/plan/dry-run.js';
import { fitMicroBatch, memoryPlan } from '../../src/train/plan/memory-plan.js';

const GIB = 2 ** 30;
const gpu = { info: () => ({ name: 'cuda:0' }) } as Device;

/** config.json of the models, as in their repositories. */
const QWEN2_5 = {
  architectures: ['Qwen2ForCausalLM'],
  attention_dropout: 0.0,
  bos_token_id: 151643,
  eos_token_id: 151645,
  hidden_act: 'silu',
  initializer_range: 0.02,
  max_position_embeddings: 32768,
  model_type: 'qwen2',
  rms_norm_eps: 1e-6,
  rope_theta: 1000000.0,
  torch_dtype: 'bfloat16',
  transformers_version: '4.43.1',
  use_cache: true,
  use_sliding_window: false,
};
const MODELS = {
  'Qwen/Qwen2.5-0.5B-Instruct': {
    ...QWEN2_5,
    hidden_size: 896,
    intermediate_size: 4864,
    max_window_layers: 21,
    num_attention_heads: 14,
    num_hidden_layers: 24,
    num_key_value_heads: 2,
    sliding_window: 32768,
    tie_word_embeddings: true,
    vocab_size: 151936,
  },
  'Qwen/Qwen2.5-7B-Instruct': {
    ...QWEN2_5,
    hidden_size: 3584,
    intermediate_size: 18944,
    max_window_layers: 28,
    num_attention_heads: 28,
    num_hidden_layers: 28,
    num_key_value_heads: 4,
    sliding_window: 131072,
    tie_word_embeddings: false,
    vocab_size: 152064,
  },
};

const RECIPES = [
  ['qwen2.5-0.5b_stepamc_prm42k', 494_032_768, 16],
  ['qwen2.5-7b_stepamc_prm42k', 7_615_616_512, 78],
  ['qwen2.5-7b_stepamc_msd22k', 7_615_616_512, 78],
] as const;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-recipes-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const ROWS = {
  prm: {
    question: { problem: 'What is 1 + 1?' },
    label: {
      steps: [
        {
          completions: [
            { text: '1 + 1 = 2', rating: 1, flagged: null },
            { text: '1 + 1 = 3', rating: -1, flagged: null },
          ],
          human_completion: null,
          chosen_completion: 0,
        },
      ],
      finish_reason: 'solution',
    },
    is_quality_control_question: false,
    is_initial_screening_question: false,
    generation: null,
  },
  msd: {
    dataset: 'gsm8k',
    prompt: 'What is 1 + 1?',
    initial_reason_steps: "Let's think step by step.\nStep 1:",
    chosen: ' 1 + 1 = 2',
    rejected: ' 1 + 1 = 3',
    full_chosen: ' 1 + 1 = 2',
    full_rejected: ' 1 + 1 = 3',
    answer: '2',
  },
};

describe.each(RECIPES)('%s', (name, parameters, memory) => {
  const load = async (...settings: string[]) =>
    (await loadRunConfig(new URL(`../../recipes/${name}.yaml`, import.meta.url).pathname, settings)).config;

  test(`fits a GPU with ${memory} GiB free, with a batch of its longest sequences`, async () => {
    const config = await load('data.train=file.jsonl');
    const model = MODELS[config.model.base as keyof typeof MODELS];
    if (config.method !== 'stepamc') throw new Error('not StepAMC');
    const shape = parseModelConfig(model, 'config.json');
    const plan = memoryPlan(gpu, config, stepAmc.memory(config, gpu), shape);
    const base = plan.items.find(({ role }) => role === 'base');
    // Norms and biases are in f32.
    const vectors = modelWeights(shape).filter((weight) => weight.shape.length === 1);
    const others = vectors.reduce((sum, weight) => sum + (weight.shape[0] as number), 0);
    expect(base?.bytes).toBe(2 * parameters + 2 * others);
    expect(plan.items.map(({ role }) => role)).toEqual(['base', 'policy', 'reference', 'reward']);
    const tokens = fitMicroBatch(plan, 0.85 * memory * GIB, config.data.max_length, config.sft);
    expect(tokens).toBeGreaterThanOrEqual(4 * config.data.max_length);
  });

  test('its dry run shows the data and the memory plan from the model’s config.json', async () => {
    const model = join(folder, name);
    await mkdir(model);
    const config = await load('data.train=file.jsonl');
    await writeFile(
      join(model, 'config.json'),
      JSON.stringify(MODELS[config.model.base as keyof typeof MODELS]),
    );
    const data = join(folder, `${name}.jsonl`);
    const row = name.endsWith('msd22k') ? ROWS.msd : ROWS.prm;
    const rows = Array.from({ length: 40 }, (_, i) => JSON.stringify(row).replaceAll('1 + 1?', `${i} + 1?`));
    await writeFile(data, rows.join('\n'));
    const known = await load(`model.base=${model}`, `data.train=${data}`, 'run.device=cpu');
    const method = methodOf(known);
    const loaded = { ...method, ...(await method.load()) };
    const { lines } = await describeRun(loaded, known, { planFor: 80 * GIB });
    expect(existsSync(data)).toBe(true);
    expect(lines.find((line) => line.includes('train'))).toMatch(
      /\d+ solutions, \d+ right and \d+ wrong steps/,
    );
    expect(lines.join('\n')).toMatch(/base +[\d.]+ GiB|base +[\d.]+ MiB/);
    // Whether a word has several tokens is the tokenizer's to say.
    expect(lines.join('\n')).toMatch(/pages of sampled answers are not in it: .*no tokenizer\.json/);
  });
});
