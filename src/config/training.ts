// Config sections of the training methods (`sft`, `pretrain`), of the run and of the evaluation.
import { z } from 'zod';
import { count, countOrAll, countOrOff, fraction, positiveNumber, section, seed, text } from './fields.js';

interface UpdateDefaults {
  readonly learning_rate: number;
  readonly micro_batch_tokens: number;
  readonly warmup_ratio: number;
  readonly lr_scheduler_type: 'constant' | 'linear' | 'cosine';
  readonly weight_decay: number;
}

interface OptimizationDefaults extends UpdateDefaults {
  readonly num_train_epochs: number;
  readonly tokens_per_step: number;
}

/** The keys of every stage that trains: learning rate, AdamW, evaluation and checkpoints. */
export function updates(defaults: UpdateDefaults) {
  return {
    learning_rate: positiveNumber().default(defaults.learning_rate).describe('Peak learning rate of AdamW.'),
    micro_batch_tokens: z
      .union([z.literal('auto'), count()])
      .default(defaults.micro_batch_tokens)
      .describe(
        'Tokens in memory at once, at most; `auto` takes what the free memory allows. Changes memory and speed, never ' +
          'the loss.',
      ),
    warmup_ratio: fraction()
      .default(defaults.warmup_ratio)
      .describe('Share of the steps over which the learning rate rises from 0 to its peak.'),
    lr_scheduler_type: z
      .enum(['constant', 'linear', 'cosine'])
      .default(defaults.lr_scheduler_type)
      .describe('Learning rate after the warm-up: held, or lowered to 0 in a line or half a cosine.'),
    weight_decay: z
      .number()
      .min(0)
      .default(defaults.weight_decay)
      .describe('Decoupled weight decay of AdamW, on every trained parameter.'),
    adam_beta1: fraction().default(0.9).describe('Decay of the mean of the gradients.'),
    adam_beta2: fraction().default(0.999).describe('Decay of the mean of the squared gradients.'),
    adam_epsilon: positiveNumber().default(1e-8).describe('Added to the root of the second moment.'),
    max_grad_norm: z
      .number()
      .min(0)
      .default(1)
      .describe('Gradients with a larger global norm are scaled down to it; 0 for no clipping.'),
    eval_steps: countOrOff()
      .default(0)
      .describe('Evaluate on the validation rows every so many steps; 0 for only at the end.'),
    save_steps: countOrOff()
      .default(100)
      .describe('Write a checkpoint every so many steps; 0 for only at the end.'),
    save_total_limit: count().default(2).describe('Keep so many of the newest checkpoints.'),
    load_best_model_at_end: z
      .boolean()
      .default(true)
      .describe(
        'Go on with the parameters of the evaluation with the highest macro F1 instead of the last ones; acts where ' +
          'eval_steps is not 0.',
      ),
  };
}

/** The keys of a stage that goes through the data in batches of tokens. */
export function optimization(defaults: OptimizationDefaults) {
  return {
    ...updates(defaults),
    num_train_epochs: positiveNumber()
      .default(defaults.num_train_epochs)
      .describe('Passes over the training rows.'),
    max_steps: z
      .int()
      .min(-1)
      .refine((steps) => steps !== 0)
      .default(-1)
      .meta({ expects: '-1 (no limit) or a whole number of at least 1' })
      .describe('Stop after so many optimizer steps, whatever the epochs say; -1 for no limit.'),
    tokens_per_step: count()
      .default(defaults.tokens_per_step)
      .describe('Tokens per optimizer step, at most. More gives smoother gradients and fewer steps.'),
  };
}

export const sft = section({
  ...optimization({
    learning_rate: 1e-4,
    num_train_epochs: 3,
    tokens_per_step: 8192,
    micro_batch_tokens: 2048,
    warmup_ratio: 0.03,
    lr_scheduler_type: 'cosine',
    weight_decay: 0,
  }),
  class_weight: z
    .enum(['none', 'balanced'])
    .default('none')
    .describe(
      '`balanced` weighs both verdicts as if they were equally frequent: it lifts the recall of wrong steps, and the ' +
        'predicted probabilities no longer follow the data.',
    ),
}).describe('Supervised fine-tuning on the verdict after each step (`method: sft`).');

export const pretrain = section({
  ...optimization({
    learning_rate: 1e-3,
    num_train_epochs: 1,
    tokens_per_step: 8192,
    micro_batch_tokens: 8192,
    warmup_ratio: 0.02,
    lr_scheduler_type: 'cosine',
    weight_decay: 0,
  }),
  loss_on: z
    .enum(['answers', 'all'])
    .default('answers')
    .describe(
      'Tokens that are learned: of each step what follows its last `=` (`answers`), or the whole step (`all`).',
    ),
}).describe('Language modelling of whole solutions, from nothing or from a base (`method: pretrain`).');

export const run = section({
  output_dir: text()
    .default('runs/run')
    .describe(
      'Directory of the run. Where it already holds a run, a number is appended: nothing is overwritten.',
    ),
  seed: seed().default(42).describe('Seed of initialisation, data order, dropout and sampling.'),
  device: z
    .string()
    .regex(/^(auto|cpu|cuda(:\d+)?)$/)
    .default('auto')
    .meta({ expects: '"auto", "cpu", "cuda" or "cuda:N"' })
    .describe('Where to compute: `auto` takes the first GPU and otherwise the processor.'),
  threads: countOrOff().default(0).describe('Processor threads; 0 for one per core.'),
  max_skipped_steps: count()
    .default(5)
    .describe(
      'A step whose loss or gradient is NaN or infinite is skipped; so many of them in a row stop the run.',
    ),
  max_minutes: z
    .number()
    .min(0)
    .default(0)
    .meta({ expects: '0 (no limit) or a number of minutes' })
    .describe(
      'End after so many minutes, for a queue that kills what runs longer: the step under way is finished, a checkpoint ' +
        'written and what was trained saved as it stands, without the final evaluation; `--resume` goes on for as many. ' +
        '0 for no limit. Leave time for a step and for writing.',
    ),
  logging_steps: count().default(10).describe('Write metrics.jsonl and a progress line every so many steps.'),
  gradient_checkpointing: z
    .boolean()
    .default(false)
    .describe(
      'Recompute each block in the backward pass: far less memory for about a third more time, same result.',
    ),
}).describe('The run: place, randomness and device.');

const maxSamples = countOrAll()
  .default('all')
  .describe('Evaluate on only so many held-out solutions; fewer is faster and noisier.');

export const verdictEvaluation = section({
  max_samples: maxSamples,
  invalid_as_wrong: z
    .boolean()
    .default(true)
    .describe('A verdict that is neither word is wrong for its class; false leaves it out and counts it.'),
  threshold: z
    .union([z.literal('greedy'), z.number().gt(0).lt(1)])
    .default('greedy')
    .describe(
      '`greedy` takes the most likely token of the whole vocabulary as the verdict; a number says "correct" where the ' +
        'probability of pos_word among the two words reaches it, and then no verdict is unreadable.',
    ),
}).describe('Evaluation on held-out steps.');

export const answerEvaluation = section({ max_samples: maxSamples }).describe(
  'Evaluation on held-out problems.',
);
