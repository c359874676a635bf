// The recipes of Step-KTO for servers: their dry run with the config.json of the real models.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { countParameters, parseModelConfig } from '../../src/architectures/table.js';
import { loadRunConfig } from '../../src/methods/config.js';
import { methodOf } from '../../src/methods/table.js';
import { describeRun } from '../../src/train/plan/dry-run.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const GIB = 2 ** 30;

/** As in their repositories. */
const LLAMA = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  attention_dropout: 0,
  bos_token_id: 128000,
  eos_token_id: [128001, 128008, 128009],
  hidden_act: 'silu',
  initializer_range: 0.02,
  max_position_embeddings: 131072,
  mlp_bias: false,
  model_type: 'llama',
  num_key_value_heads: 8,
  pretraining_tp: 1,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    factor: 8,
    high_freq_factor: 4,
    low_freq_factor: 1,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
  rope_theta: 500000,
  tie_word_embeddings: false,
  vocab_size: 128256,
};
const RECIPES = [
  {
    name: 'llama-3.1-8b_step-kto_numinamath',
    model: {
      ...LLAMA,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_attention_heads: 32,
      num_hidden_layers: 32,
    },
    parameters: 8_030_261_248,
    fits: 74,
    tooSmall: 16,
  },
  {
    name: 'llama-3.3-70b_step-kto_numinamath',
    model: {
      ...LLAMA,
      hidden_size: 8192,
      intermediate_size: 28672,
      num_attention_heads: 64,
      num_hidden_layers: 80,
    },
    parameters: 70_553_706_496,
    fits: 178,
    tooSmall: 141,
  },
];

describe.each(RECIPES)('$name', ({ name, model, parameters, fits, tooSmall }) => {
  test('sums the log-ratios of a step, and has a judge that labels and another that evaluates', async () => {
    const recipe = new URL(`../../recipes/${name}.yaml`, import.meta.url).pathname;
    const { config } = await loadRunConfig(recipe, ['data.train=rows.jsonl']);
    // By the mean over tokens a whole step weighs as little as one token: nearly KTO (docs/methods/step-kto.md).
    expect(config).toMatchObject({
      step_kto: { reduction: 'sum', step_weight: 1, auto_balance: true },
      judge: { kind: 'llm' },
      eval_solving: { judge: 'llm' },
    });
    const { judge, eval_solving: evaluation } = config as unknown as {
      readonly judge: { readonly model: string };
      readonly eval_solving: { readonly llm: { readonly model: string } };
    };
    expect(evaluation.llm.model).not.toBe(judge.model);
  });

  test(`fits ${fits} GiB, and of ${tooSmall} GiB says how many are missing`, async () => {
    const folder = temporaryDirectory();
    const base = join(folder, 'model');
    mkdirSync(base);
    writeFileSync(join(base, 'config.json'), JSON.stringify(model));
    expect(countParameters(parseModelConfig(model, 'config.json'))).toBe(parameters);
    const rows = Array.from({ length: 200 }, (_, i) => ({
      ...{ source: 'synthetic_math', problem: `What is ${i} + 1?`, solution: `It is $\\boxed{${i + 1}}$.` },
    }));
    const data = join(folder, 'rows.jsonl');
    writeFileSync(data, rows.map((row) => JSON.stringify(row)).join('\n'));
    const recipe = new URL(`../../recipes/${name}.yaml`, import.meta.url).pathname;
    const settings = [`model.base=${base}`, `data.train=${data}`, 'run.device=cpu'];
    const { config } = await loadRunConfig(recipe, settings);
    const method = methodOf(config);
    const opened = { ...method, ...(await method.load()) };
    const plan = async (gib: number) =>
      (await describeRun(opened, config, { planFor: gib * GIB })).lines.join('\n');
    const enough = await plan(fits);
    expect(enough).toMatch(/micro-batches: step_kto \d+ tokens/);
    expect(enough).toContain(`${((2 * parameters) / GIB).toFixed(2)} GiB`);
    expect(await plan(tooSmall)).toMatch(/it does not fit: .*[\d.]+ GiB are missing/);
    // Its base cannot be divided among eight of them: the plan neither says so nor counts on it.
    const among = { planFor: tooSmall * GIB, processes: 8 };
    const eight = (await describeRun(opened, config, among)).lines.join('\n');
    expect(eight).toContain('run.zero: 1 would divide the AdamW moments by 8');
    expect(eight).not.toContain('run.shard_base: true would divide');
    const divided = { ...config, run: { ...config.run, shard_base: true } };
    await expect(describeRun(opened, divided, among)).rejects.toThrow(
      /^run\.shard_base needs a method that does not sample; set it to false$/,
    );
  });
});
