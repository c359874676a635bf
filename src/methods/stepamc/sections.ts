// Config sections of StepAMC: the reward network, the policy, its constraint, and what is left out of them or put in
// their place.
import { z } from 'zod';
import { count, fraction, positiveNumber, section } from '../../config/fields.js';
import { optimization, updates } from '../../config/training.js';

const headRate = () =>
  positiveNumber()
    .default(10)
    .describe('The scalar head learns so many times faster than the adapter; it starts from random numbers.');

const LORA_RATES = {
  micro_batch_tokens: 2048,
  warmup_ratio: 0.03,
  lr_scheduler_type: 'cosine',
  weight_decay: 0,
} as const;

export const frn = section({
  ...optimization({ ...LORA_RATES, learning_rate: 1e-4, num_train_epochs: 1, tokens_per_step: 8192 }),
  head_rate: headRate(),
  init: z
    .enum(['base', 'sft'])
    .default('base')
    .describe(
      'Start of its adapter: fresh on the base, or a copy of the warmed-up policy, which learns faster.',
    ),
  pair_mode: z
    .enum(['label', 'step'])
    .default('label')
    .describe(
      'What is compared: the right verdict with the wrong one after the same step (`label`), or a right step with a ' +
        'wrong one of the same problem (`step`; the same steps before them where there are such).',
    ),
  margin: z
    .number()
    .min(0)
    .default(0)
    .describe('By how much the right one must win before its loss counts as settled.'),
  center_coef: z
    .number()
    .min(0)
    .default(0)
    .describe('Weight of the squared sum of a pair’s scores, which keeps scores near 0.'),
  update: z
    .enum(['frozen', 'joint'])
    .default('frozen')
    .describe('`joint` trains the network further on every rollout batch while the policy learns from it.'),
  center: z
    .enum(['pair_mean', 'running', 'none'])
    .default('pair_mean')
    .describe(
      'How a score becomes a reward: less the mean of both verdicts’ scores, or normalised by running mean and ' +
        'deviation, or as it is. A pairwise loss leaves the offset of each step open.',
    ),
}).describe('The fine-grained reward network: an adapter and a scalar head on the same base.');

export const ppo = section({
  ...updates({ ...LORA_RATES, learning_rate: 5e-6, lr_scheduler_type: 'linear' }),
  head_rate: headRate(),
  num_train_epochs: positiveNumber().default(1).describe('Passes over the training solutions.'),
  max_iterations: z
    .int()
    .min(-1)
    .refine((iterations) => iterations !== 0)
    .default(-1)
    .meta({ expects: '-1 (no limit) or a whole number of at least 1' })
    .describe('Stop after so many rollout batches, whatever the epochs say; -1 for no limit.'),
  rollout_batch: count().default(256).describe('Verdicts per rollout batch, at least; solutions stay whole.'),
  num_ppo_epochs: count().default(2).describe('Passes over each rollout batch.'),
  num_mini_batches: count().default(1).describe('Optimizer steps per pass over a rollout batch.'),
  rollout: z
    .enum(['sample', 'enumerate'])
    .default('sample')
    .describe(
      '`sample` draws a verdict per step from the policy; `enumerate` scores both words and takes the expectation, ' +
        'which has no sampling noise.',
    ),
  temperature: positiveNumber().default(1).describe('Of sampling, and of the log-probs that are compared.'),
  old_logprobs: z
    .enum(['rescore', 'sampler'])
    .default('rescore')
    .describe(
      'Log-probs that the ratio divides by: from the training forward (the first ratio is exactly 1) or the sampler’s. ' +
        'Their difference is logged either way.',
    ),
  gamma: z.number().min(0).max(1).default(1).describe('Discount per token.'),
  lam: z.number().min(0).max(1).default(0.95).describe('λ of generalised advantage estimation.'),
  cliprange: z.number().gt(0).lt(1).default(0.2).describe('The ratio counts only within 1 ± this.'),
  vf_coef: z.number().min(0).default(0.1).describe('Weight of the value loss.'),
  cliprange_value: z
    .number()
    .min(0)
    .default(0.2)
    .describe('A value counts only within ± this of its old one; 0 for no limit.'),
  entropy_coef: z.number().min(0).default(0).describe('Weight of the entropy bonus.'),
  whiten_advantages: z
    .boolean()
    .default(true)
    .describe('Shift and scale the advantages of a rollout batch to mean 0 and deviation 1.'),
  kl_coef: z.number().min(0).default(0.02).describe('Weight of the KL penalty to the reference.'),
  kl_estimator: z
    .enum(['k1', 'k2', 'k3'])
    .default('k3')
    .describe('Estimate of the KL penalty from d = log-prob − reference: d, d²/2 or exp(−d) − 1 + d.'),
  kl_in: z
    .enum(['loss', 'reward'])
    .default('loss')
    .describe('The penalty is a term of the loss, or is taken off the reward of each token (always d).'),
  reference: z
    .enum(['sft', 'base'])
    .default('sft')
    .describe(
      'The reference of the KL: the policy as the warm-up left it, or the base with its adapter off.',
    ),
  reward_at: z
    .enum(['last', 'every'])
    .default('last')
    .describe('Put the reward at the last token of a verdict or at every token.'),
  reward_clip: z.number().min(0).default(10).describe('Rewards are cut at ± this; 0 for no limit.'),
  invalid_reward: z
    .number()
    .default(-1)
    .describe('Reward of an answer that is neither word, on the scale of the final rewards.'),
  wrong_reward: z
    .number()
    .max(1)
    .default(-1)
    .describe('With ablation.no_frn: reward of a wrong verdict; a right one has 1.'),
}).describe('Proximal policy optimisation of the verdicts.');

export const constraint = section({
  form: z
    .enum(['class_balanced', 'ce_two', 'ce_full', 'mass', 'margin'])
    .default('class_balanced')
    .describe(
      'Of the two words’ probabilities, renormalised over the two: −log of the right one, meaned per class ' +
        '(`class_balanced`) or over all (`ce_two`); over the whole vocabulary (`ce_full`); −log of both together ' +
        '(`mass`); or a margin between their log-probs (`margin`).',
    ),
  margin: positiveNumber().default(1).describe('Of `form: margin`.'),
  combine: z
    .enum(['rl', 'policy', 'constraint'])
    .default('rl')
    .describe(
      'What α weighs beside (1 − α) of the constraint: policy and value loss (`rl`), the policy loss alone ' +
        '(`policy`), or neither (`constraint`).',
    ),
  alpha: section({
    mode: z
      .enum(['fixed', 'learnable_clamped', 'uncertainty', 'schedule'])
      .default('learnable_clamped')
      .describe(
        'Fixed; learned within lo … hi; the constraint weighed by a learned uncertainty in place of 1 − α; or moved in ' +
          'a line from init to final. Free descent on α would switch the constraint off.',
      ),
    init: z.number().gt(0).lt(1).default(0.5).describe('First value.'),
    final: z.number().gt(0).lt(1).default(0.5).describe('Last value of `mode: schedule`.'),
    lo: fraction().default(0.1).describe('Lower end of `mode: learnable_clamped`.'),
    hi: z.number().gt(0).max(1).default(0.9).describe('Upper end of `mode: learnable_clamped`.'),
    learning_rate: positiveNumber().default(1e-3).describe('Of the learned modes.'),
  }).describe('The balance between reinforcement and constraint.'),
}).describe('The constraint that keeps the policy among the two verdict words and tells them apart.');

export const dpo = section({
  ...optimization({ ...LORA_RATES, learning_rate: 5e-6, num_train_epochs: 1, tokens_per_step: 8192 }),
  beta: positiveNumber().default(0.1).describe('Strength of the pull to the reference.'),
  label_smoothing: fraction().default(0).describe('Share of labels taken to be wrong.'),
}).describe('With baseline: dpo, in place of the policy optimisation.');

export const ablation = section({
  no_scpn: z.boolean().default(false).describe('Plain PPO: the constraint is measured but not trained on.'),
  no_frn: z.boolean().default(false).describe('Rewards are 1 for the right verdict, from the label itself.'),
}).describe('Parts of StepAMC to leave out.');

export const baseline = z
  .enum(['none', 'sft', 'sft_continued', 'dpo'])
  .default('none')
  .describe(
    'What to train in place of reward network and policy, after the same warm-up: nothing (`sft`), more of the same for ' +
      'the tokens that they would have used (`sft_continued`), or DPO on the verdicts for those tokens.',
  );
