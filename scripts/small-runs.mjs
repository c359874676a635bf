// Runs of seconds, one for every method and every kind of state that a resume must restore: what scripts/kills.mjs kills and
// scripts/soak.mjs repeats. By name the keys of a recipe.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Large, so that a step that differs is seen in the last bits of what follows. */
const learning_rate = 1e-3;
const run = { device: 'cpu', threads: 1, logging_steps: 1 };
const word_problems = { samples: 60, levels: [1] };
const lora = { r: 4, lora_alpha: 8 };
const misread = { base: 'word-problems-misread', dtype: 'f32' };
const sampled = {
  model: misread,
  data: { source: 'word_problems', word_problems, max_length: 256 },
  rollout: { num_generations: 4, max_new_tokens: 24, template: '{problem}\n' },
  run,
  eval: { max_samples: 4 },
};
const policy = {
  method: 'ppo',
  ...sampled,
  reward: { rule: { weight: 1 }, length: { weight: 0.1, from: 2, to: 24 } },
};
const verdicts = {
  model: { base: 'embedded', dtype: 'f32' },
  lora,
  data: { source: 'arithmetic', arithmetic: { samples: 160 }, max_length: 128 },
  prompt: { template: 'compact', pos_word: '1', neg_word: '0' },
  run,
  eval: { max_samples: 24 },
};
const preferences = {
  model: { base: 'embedded', dtype: 'f32' },
  lora: { ...lora, lora_dropout: 0 },
  data: { source: 'arithmetic', arithmetic: { samples: 200, error_rate: 0.2 }, max_length: 96 },
  question: { template: '{problem}\n' },
  run,
  eval: { max_samples: 24 },
};

export const SMALL_RUNS = {
  pretrain: {
    method: 'pretrain',
    model: {
      base: {
        init: { hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2 },
      },
      tokenizer: 'bytes',
      dtype: 'f32',
    },
    data: { source: 'arithmetic', arithmetic: { samples: 400 }, max_length: 128 },
    pretrain: { learning_rate, max_steps: 24, tokens_per_step: 512, save_steps: 4 },
    run,
  },
  sft: {
    method: 'sft',
    ...verdicts,
    lora: { ...lora, lora_dropout: 0.05 },
    sft: { learning_rate, tokens_per_step: 512, micro_batch_tokens: 256, eval_steps: 7, save_steps: 4 },
  },
  stepamc: {
    method: 'stepamc',
    ...verdicts,
    sft: { learning_rate, tokens_per_step: 1024, eval_steps: 3, save_steps: 2 },
    reward_network: {
      learning_rate,
      max_steps: 6,
      tokens_per_step: 1024,
      eval_steps: 3,
      save_steps: 2,
      update: 'joint',
      center: 'running',
    },
    verdict_ppo: {
      learning_rate,
      max_iterations: 3,
      rollout_batch: 64,
      num_mini_batches: 2,
      micro_batch_tokens: 512,
      eval_steps: 4,
      save_steps: 3,
    },
  },
  reward: {
    method: 'reward',
    model: { base: 'word-problems', dtype: 'f32' },
    lora,
    data: { source: 'word_problems', word_problems: { ...word_problems, error_rate: 0.3 }, max_length: 256 },
    reward_model: { type: 'joint', tokens_per_step: 512, learning_rate, eval_steps: 5, save_steps: 3 },
    run,
    eval: { max_samples: 24 },
  },
  ppo: {
    ...policy,
    lora: { ...lora, lora_dropout: 0 },
    ppo: {
      learning_rate,
      rollout_batch: 3,
      max_iterations: 4,
      num_ppo_epochs: 2,
      num_mini_batches: 2,
      critic: 'adapter',
      critic_warmup: 2,
      kl_target: 0.01,
      kl_horizon: 20,
      eval_steps: 5,
      save_steps: 3,
    },
  },
  grpo: {
    ...policy,
    lora: 'none',
    ppo: {
      algorithm: 'grpo',
      learning_rate,
      rollout_batch: 3,
      max_iterations: 6,
      eval_steps: 3,
      save_steps: 2,
    },
  },
  prime: {
    ...policy,
    lora: { ...lora, lora_dropout: 0.05 },
    reward: { rule: { weight: 1 }, implicit: { weight: 5, learning_rate } },
    ppo: {
      algorithm: 'prime',
      learning_rate,
      rollout_batch: 3,
      max_iterations: 4,
      num_mini_batches: 2,
      kl_coef: 0,
      save_steps: 3,
    },
  },
  distill: {
    method: 'distill',
    ...sampled,
    lora: { ...lora, lora_dropout: 0.05 },
    teacher: { model: 'word-problems' },
    distill: {
      learning_rate,
      judge: 'oracle',
      lmbda: 0.5,
      beta: 0.5,
      batch_problems: 6,
      max_iterations: 6,
      eval_steps: 3,
      save_steps: 2,
    },
  },
  step_kto: {
    method: 'step_kto',
    model: misread,
    lora: { ...lora, lora_dropout: 0 },
    data: { source: 'word_problems', word_problems, max_length: 256 },
    question: { template: '{problem}\n' },
    sampling: { num_generations: 4, max_new_tokens: 48, problems_per_iteration: 12 },
    judge: { kind: 'oracle' },
    step_kto: { learning_rate, iterations: 2, batch_size: 16, auto_balance: true, save_steps: 1 },
    run,
    eval: { max_samples: 4 },
    eval_solving: { num_generations: 2, judge: 'oracle' },
  },
  s3c: {
    method: 's3c',
    model: { base: 'word-problems', dtype: 'f32' },
    lora: 'none',
    data: {
      source: 'word_problems',
      word_problems: { samples: 40, levels: [1], error_rate: 0 },
      max_length: 320,
    },
    format: { template: '{problem}\n' },
    corrections: {
      sample: { n: 1, temperature: 1.6, max_new_tokens: 16 },
      validate: { k: 1, max_new_tokens: 32 },
      annotate: { teacher: 'oracle' },
    },
    s3c: { learning_rate, num_train_epochs: 2, tokens_per_step: 512, save_steps: 2 },
    run,
    eval: { max_samples: 4 },
    eval_sampling: { num_samples: 2, max_new_tokens: 48 },
  },
  kto: {
    method: 'kto',
    ...preferences,
    kto: { learning_rate, num_train_epochs: 2, batch_size: 16, save_steps: 4 },
  },
  dpo: {
    method: 'dpo',
    ...preferences,
    data: { train: 'pairs.jsonl', split: [8, 1, 1], max_length: 96 },
    dpo: { learning_rate, num_train_epochs: 2, batch_size: 8, save_steps: 2 },
  },
};

/** Sums with a right and a wrong answer, as rows of preferences. */
function pairs() {
  const rows = Array.from({ length: 160 }, (_, i) => {
    const sum = i + (i % 7);
    return { prompt: `${i}+${i % 7}`, chosen: `=${sum}`, rejected: `=${sum + 1 + (i % 3)}` };
  });
  return rows.map((row) => `${JSON.stringify(row)}\n`).join('');
}

/** Writes the runs into a folder as recipes, the data of `dpo` beside them; by name the path of each. */
export function writeSmallRuns(folder) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'pairs.jsonl'), pairs());
  return new Map(
    Object.entries(SMALL_RUNS).map(([name, { data, ...keys }]) => {
      const files = data.train === undefined ? {} : { train: join(folder, data.train) };
      const path = join(folder, `${name}.yaml`);
      writeFileSync(path, JSON.stringify({ ...keys, data: { ...data, ...files } }, undefined, 2));
      return [name, path];
    }),
  );
}
