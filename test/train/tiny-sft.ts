// A fine-tuning of the embedded model that takes a fraction of a second, and other methods beside it.
import type { RunConfigInput } from '../../src/methods/table.js';

const SFT = {
  max_steps: 4,
  tokens_per_step: 512,
  micro_batch_tokens: 512,
  learning_rate: 1e-2,
  load_best_model_at_end: false,
};

/** `sft` and the other sections are those of a recipe; a `method` brings its own. */
export const tinySft = ({ sft, ...more }: Record<string, object | string> = {}) =>
  ({
    method: 'sft',
    data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 512 },
    eval: { max_samples: 8 },
    run: { device: 'cpu', threads: 1, logging_steps: 1 },
    ...('method' in more ? {} : { sft: { ...SFT, ...(sft as object) } }),
    ...more,
  }) as unknown as RunConfigInput;

/** Two layers' products of rank 2. */
export const TINY_LORA = { r: 2, lora_alpha: 4, target_modules: ['q_proj', 'down_proj'] };

export const tinyRounds = ({ step_kto, ...more }: Record<string, object>) =>
  ({
    method: 'step_kto',
    data: { source: 'word_problems', word_problems: { samples: 60 }, max_length: 320 },
    question: { template: '{problem}\n' },
    sampling: { num_generations: 2, max_new_tokens: 60, problems_per_iteration: 6 },
    eval: { max_samples: 1 },
    eval_solving: { num_generations: 0, judge: 'oracle' },
    run: { device: 'cpu', threads: 1, logging_steps: 1 },
    step_kto: {
      ...{ iterations: 1, batch_size: 4, micro_batch_tokens: 512, load_best_model_at_end: false },
      ...step_kto,
    },
    ...more,
  }) as unknown as RunConfigInput;
