// The config keys of every training stage: learning rate, batches, AdamW, evaluation and checkpoints.
import { z } from 'zod';
import {
  count,
  countOrOff,
  countOrUnlimited,
  flag,
  fraction,
  nonNegative,
  positiveNumber,
  shared,
} from './fields.js';

interface UpdateDefaults {
  readonly learning_rate: number;
  readonly micro_batch_tokens?: number;
  readonly warmup_ratio?: number;
  readonly lr_scheduler_type?: 'constant' | 'linear' | 'cosine';
}

interface EpochDefaults extends UpdateDefaults {
  readonly num_train_epochs?: number;
}

/** The keys of every training stage: learning rate, AdamW, evaluation and checkpoints. */
export function updates({
  learning_rate,
  micro_batch_tokens = 2048,
  warmup_ratio = 0.03,
  lr_scheduler_type = 'cosine',
}: UpdateDefaults) {
  return shared('optimizer', {
    learning_rate: positiveNumber(learning_rate).describe('Peak learning rate of AdamW.'),
    micro_batch_tokens: z
      .union([z.literal('auto'), count()])
      .default(micro_batch_tokens)
      .describe(
        'Max tokens per micro-batch; `auto` takes what is fastest, as far as memory allows. Changes memory and speed, never the loss, ' +
          'but for `model.router_aux_loss_coef`. ' +
          'The default is raised to `data.max_length`.',
      ),
    warmup_ratio: fraction(warmup_ratio).describe(
      'Share of the steps over which the learning rate rises from 0 to its peak; the first of them has rate 0, as in transformers.',
    ),
    lr_scheduler_type: z
      .enum(['constant', 'linear', 'cosine'])
      .default(lr_scheduler_type)
      .describe('Learning rate after the warm-up: constant, or linear or half-cosine decay to 0.'),
    weight_decay: nonNegative(0).describe('Decoupled weight decay of AdamW, on every trained parameter.'),
    adam_beta1: fraction(0.9).describe('Decay of the mean of the gradients.'),
    adam_beta2: fraction(0.999).describe('Decay of the mean of the squared gradients.'),
    adam_epsilon: positiveNumber(1e-8).describe('Added to the root of the second moment.'),
    max_grad_norm: nonNegative(1).describe(
      'Gradients with a larger global norm are scaled down to it; 0 for no clipping.',
    ),
    eval_steps: z
      .union([countOrOff(), fraction()])
      .default(0)
      .meta({ expects: 'a whole number of steps, or a share of the steps such as 0.1' })
      .describe(
        'Steps between evaluations on the validation rows, or their share of the steps of the stage (`0.1`: ten evaluations, however ' +
          'long it is); 0 for only at the end and, if the best parameters are kept, at the start.',
      ),
    patience: countOrOff(0).describe(
      'End the stage after this many evaluations in a row without a better one (`load_best_model_at_end` says by what), whether the best is kept or not; ' +
        '0 for never. Needs eval_steps above 0.',
    ),
    save_steps: countOrOff(100).describe('Steps between checkpoints; 0 for only at the end.'),
    save_total_limit: count(2).describe('Max checkpoints to keep, newest first.'),
    load_best_model_at_end: flag(true).describe(
      'At the end of the stage, restore the parameters of the best evaluation: of verdicts the highest macro F1, of reward models AUC, of the reward ' +
        'network the share of pairs in the right order, of `pretrain` and `s3c` that of tokens, of `ppo`, `distill` and rounds that of problems that are ' +
        'solved, else the lowest loss; of equals the highest AUC, else the lowest loss. Those that the stage begins with count too, so that no stage ends ' +
        'worse on the validation rows than it began.',
    ),
  });
}

/** The keys of a stage that learns from batches of what its policy samples, by PPO's objective. */
export function rollouts(defaults: { readonly num_ppo_epochs: number }) {
  return shared('rollouts', {
    max_iterations: countOrUnlimited().describe('Max rollout batches, whatever the epochs; -1 for no limit.'),
    num_ppo_epochs: count(defaults.num_ppo_epochs).describe('Passes over each rollout batch.'),
    num_mini_batches: count(1).describe('Optimizer steps per pass over a rollout batch.'),
    vf_coef: nonNegative(0.1).describe('Weight of the value loss.'),
    cliprange_value: nonNegative(0.2).describe(
      'Values are clipped to ± this around the old values; 0 for no clipping.',
    ),
    entropy_coef: nonNegative(0).describe('Weight of the entropy bonus.'),
    kl_coef: nonNegative(0.02).describe('Weight of the KL penalty to the reference.'),
  });
}

function epochs({ num_train_epochs = 1, ...defaults }: EpochDefaults) {
  return {
    ...updates(defaults),
    ...shared('optimizer', {
      num_train_epochs: positiveNumber(num_train_epochs).describe('Passes over the training rows.'),
      max_steps: countOrUnlimited().describe(
        'Max optimizer steps; -1 for no limit. The epochs may end the stage sooner (in TRL `max_steps` takes their place).',
      ),
    }),
  };
}

/** The keys of a stage that goes through the data in batches of tokens. */
export function optimization({
  tokens_per_step = 8192,
  ...defaults
}: EpochDefaults & { readonly tokens_per_step?: number }) {
  return {
    ...epochs(defaults),
    ...shared('optimizer', {
      tokens_per_step: count(tokens_per_step).describe(
        'Max tokens per optimizer step. More gives less noisy gradients and fewer steps. The default is raised to `data.max_length`.',
      ),
    }),
  };
}

/** The keys of a stage that goes through the data in batches of answers, or of pairs of them. */
export function answerBatches({ batch_size, ...defaults }: EpochDefaults & { readonly batch_size: number }) {
  return {
    ...epochs(defaults),
    ...shared('batches', {
      batch_size: count(batch_size).describe(
        'Answers, or pairs of them, per optimizer step, however many fit in memory at once: what TRL calls ' +
          'per_device_train_batch_size times gradient_accumulation_steps and devices.',
      ),
    }),
  };
}
