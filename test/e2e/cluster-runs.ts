/** A run of seconds for every method, by what it is called; the keys of a recipe. Several processes must end with the bits of one. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
// @ts-expect-error plain JavaScript
import { SMALL_RUNS } from '../../scripts/small-runs.mjs';

type Recipe = Readonly<Record<string, unknown>>;
const small = SMALL_RUNS as unknown as Readonly<Record<string, Recipe>>;

/** Sections replaced by section, as far as they are named. */
function changed(recipe: Recipe, changes: Readonly<Record<string, object>>): Recipe {
  const merged = Object.entries(changes).map(([name, section]) => [
    name,
    { ...(recipe[name] as object), ...section },
  ]);
  return { ...recipe, ...Object.fromEntries(merged) };
}

const short = { max_steps: 2, save_steps: 2, eval_steps: 2 };
const pieces = { learning_rate: 1e-3, batch_size: 8, micro_batch_tokens: 96, warmup_ratio: 0, max_steps: 2 };

/** A method that learns from the answers of a file. */
const offline = (method: string, train: string, settings: object = {}): Recipe => ({
  method,
  model: { base: 'embedded', dtype: 'f32' },
  lora: { r: 4, lora_alpha: 8, lora_dropout: 0.1 },
  data: { train, max_length: 48, split: [8, 1, 1] },
  [method]: { ...pieces, ...settings },
  run: { device: 'cpu', threads: 1, logging_steps: 1 },
});

const { sft: _sft, ...verdicts } = small.sft as Recipe;

const RUNS: Readonly<Record<string, Recipe>> = {
  sft: changed(small.sft as Recipe, { sft: short }),
  kto: changed(small.kto as Recipe, { kto: { max_steps: 2 } }),
  ppo: changed(small.ppo as Recipe, { ppo: { max_iterations: 2, critic_warmup: 1, eval_steps: 1 } }),
  step_kto: changed(small.step_kto as Recipe, {
    data: { word_problems: { samples: 24, levels: [1] } },
    sampling: { problems_per_iteration: 4 },
    step_kto: { iterations: 1 },
  }),
  stepamc: changed(small.stepamc as Recipe, {
    data: { arithmetic: { samples: 80 } },
    sft: { max_steps: 2, eval_steps: 2 },
    reward_network: { max_steps: 2, eval_steps: 2 },
    verdict_ppo: { max_iterations: 1, rollout_batch: 24, eval_steps: 2 },
  }),
  s3c: changed(small.s3c as Recipe, {
    data: { word_problems: { samples: 24, levels: [1], error_rate: 0 } },
    s3c: { max_steps: 2 },
    eval: { max_samples: 3 },
    eval_sampling: { num_samples: 2, max_new_tokens: 24 },
  }),
  reward: changed(small.reward as Recipe, { reward_model: short, eval: { max_samples: 8 } }),
  verdict_dpo: { ...verdicts, method: 'verdict_dpo', verdict_dpo: { ...short, learning_rate: 1e-3 } },
  pretrain: changed(small.pretrain as Recipe, { pretrain: { max_steps: 3 } }),
  // Enough parameters for slices of several processes.
  zero: {
    ...changed(small.pretrain as Recipe, { pretrain: { max_steps: 4, save_steps: 1, save_total_limit: 4 } }),
    model: {
      base: {
        init: { hidden_size: 96, intermediate_size: 512, num_hidden_layers: 1, num_attention_heads: 2 },
      },
      tokenizer: 'bytes',
      dtype: 'f32',
    },
  },
  distill: changed(small.distill as Recipe, { distill: { max_iterations: 2 } }),
  prime: changed(small.prime as Recipe, { ppo: { max_iterations: 2 } }),
  dpo: offline('dpo', 'pairs.jsonl'),
  step_dpo: offline('step_dpo', 'solutions.jsonl'),
  full_step_dpo: offline('full_step_dpo', 'solutions.jsonl'),
  simpo: offline('simpo', 'pairs.jsonl'),
  orpo: offline('orpo', 'pairs.jsonl'),
  solution_sft: offline('solution_sft', 'solutions.jsonl'),
  rft: offline('rft', 'solutions.jsonl'),
  implicit_prm: offline('implicit_prm', 'solutions.jsonl'),
};

/** Of each method that runs have; `prime` is an algorithm of `ppo`, and `zero` pre-trains a model of 210,000 parameters. */
export const METHOD_RUNS = Object.keys(RUNS);

/** Sums in two steps, right and wrong in the second, with scores; and pairs of answers. */
function files(): Readonly<Record<string, readonly object[]>> {
  const sums = Array.from({ length: 40 }, (_, i) => [1 + (i % 9), 2 + ((i * 7) % 11)] as const);
  const step = (text: string, label: 1 | 0, score: number) => ({ text, label, kind: 'normal', score });
  return {
    'pairs.jsonl': sums.map(([a, b]) => ({
      prompt: `${a}+${b}\n`,
      chosen: `${a}+${b}=${a + b}\n`,
      rejected: `${a}+${b}=${a + b + 1}\n`,
    })),
    'solutions.jsonl': sums.flatMap(([a, b]) =>
      ([1, 0] as const).map((right) => ({
        problem: `${a}+${b}+1`,
        steps: [
          step(`${a}+1=${a + 1}`, 1, 0.9),
          step(`${a + 1}+${b}=${a + b + 2 - right}`, right, right ? 0.8 : 0.1),
        ],
        outcome: right,
      })),
    ),
  };
}

/** Writes the recipes and their data into a folder. @returns the path of each recipe */
export function writeMethodRuns(folder: string): ReadonlyMap<string, string> {
  mkdirSync(folder, { recursive: true });
  for (const [name, rows] of Object.entries(files()))
    writeFileSync(join(folder, name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return new Map(
    Object.entries(RUNS).map(([name, { data, ...keys }]) => {
      const { train, ...rest } = data as { readonly train?: string };
      const read = train === undefined ? {} : { train: join(folder, train) };
      const path = join(folder, `${name}.yaml`);
      writeFileSync(path, JSON.stringify({ ...keys, data: { ...rest, ...read } }, undefined, 2));
      return [name, path];
    }),
  );
}
