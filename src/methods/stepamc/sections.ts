// Config sections of StepAMC: the reward network, the policy, its constraint and ablations.
import { z } from 'zod';
import {
  choice,
  count,
  flag,
  fraction,
  nonNegative,
  positiveNumber,
  samplingTemperature,
  section,
  share,
} from '../../config/fields.js';
import { optimization, rollouts, updates } from '../../config/training.js';

export const rewardNetwork = section({
  ...optimization({ learning_rate: 1e-4 }),
  init: choice('base', 'sft').describe(
    'Initial adapter: new on the base (a copy of model.adapter if that is continued), or a copy of the warmed-up policy, which learns faster.',
  ),
  pair_mode: choice('label', 'step').describe(
    'The pairs that are compared: the right verdict with the wrong one after the same step (`label`), or a right step with a ' +
      'wrong one of the same problem (`step`; after the same steps if possible).',
  ),
  margin: nonNegative(0).describe('Margin subtracted from the score difference of each pair.'),
  center_coef: nonNegative(0).describe(
    'Weight of the squared sum of a pair’s scores, which keeps scores near 0.',
  ),
  update: choice('frozen', 'joint').describe(
    '`joint` continues to train the network on every rollout batch while the policy learns from it, as our source has ' +
      'it.',
  ),
  center: choice('auto', 'pair_mean', 'running', 'none').describe(
    'How a score becomes a reward: minus the mean of both verdicts’ scores (`pair_mean`), normalised by running mean and ' +
      'standard deviation (`running`), or unchanged. A pairwise loss leaves the zero of the scores undetermined. `auto` is ' +
      '`pair_mean` for `pair_mode: label`, and `running` for `step`, where a step has one score and no mean of two.',
  ),
}).describe('The fine-grained reward network: an adapter and a scalar head on the same base.');

export const verdictPpo = section({
  ...updates({ learning_rate: 5e-6, lr_scheduler_type: 'linear' }),
  num_train_epochs: positiveNumber(1).describe('Passes over the training solutions.'),
  steps: choice('labelled', 'unlabelled', 'all').describe(
    'The training steps that the policy judges: those with a label, those without, or both. Without a label the reward ' +
      'comes from the network alone, and the constraint leaves the step out.',
  ),
  rollout_batch: count(256).describe(
    'Max verdicts per rollout batch; solutions stay whole, so one with more verdicts is a batch of its own.',
  ),
  ...rollouts({ num_ppo_epochs: 2 }),
  rollout: choice('sample', 'enumerate').describe(
    '`sample` samples one verdict per step from the policy; `enumerate` scores both words and takes the expectation, ' +
      'which has no sampling noise.',
  ),
  temperature: samplingTemperature(1).describe(
    'Temperature of sampling and of the log-probs that are compared.',
  ),
  old_logprobs: choice('rescore', 'sampler').describe(
    'Old log-probs of the ratio: from the training forward (the first ratio is exactly 1 on the CPU; in bf16 on ' +
      'ARM for words of one token) or from the sampler. Their difference is logged either way.',
  ),
  gamma: share(1).describe('Discount per token.'),
  lam: share(0.95).describe('λ of generalised advantage estimation.'),
  cliprange: z.number().gt(0).lt(1).default(0.2).describe('The probability ratio is clipped to 1 ± this.'),
  whiten_advantages: flag(true).describe(
    'Normalise the advantages of a rollout batch to mean 0 and standard deviation 1.',
  ),
  kl_estimator: z
    .enum(['k1', 'k2', 'k3'])
    .default('k3')
    .describe(
      'Estimator of the KL penalty from d = log-prob − reference log-prob: d, d²/2 or exp(−d) − 1 + d. In the loss, `k1` has no ' +
        'gradient in expectation on answers of the policy itself, so a run with it is warned.',
    ),
  kl_in: choice('loss', 'reward').describe(
    'Add the penalty to the loss, or subtract it from the reward of each token (always d).',
  ),
  reference: choice('sft', 'base').describe(
    'The reference of the KL: the policy after the warm-up, or the model that the run began with: the base, under model.adapter if there is one.',
  ),
  reward_at: choice('last', 'every').describe(
    'Put the reward at the last token of a verdict or at every token.',
  ),
  reward_clip: nonNegative(10).describe('Rewards are clipped to ± this; 0 for no clipping.'),
  invalid_reward: z
    .number()
    .default(-1)
    .describe(
      'Reward of an answer that is neither word, on the scale of the final rewards; it gets what the worse word would get where that is less.',
    ),
  wrong_reward: z
    .number()
    .max(1)
    .default(-1)
    .describe('With ablation.no_reward_network: reward of a wrong verdict; a right one gets 1.'),
}).describe('Proximal policy optimisation of the verdicts.');

export const constraint = section({
  form: choice('class_balanced_full', 'class_balanced').describe(
    'Cross-entropy of the right word, averaged per class: over the whole vocabulary (`class_balanced_full`), or among the two ' +
      'words alone (`class_balanced`), which leaves the probability of every other word free.',
  ),
  alpha: section({
    mode: choice('fixed', 'learnable_clamped').describe(
      'Fixed, or learned within lo … hi. The surrogate loss stays near 0 and the constraint does not, so a learned α rises towards ' +
        'hi whatever the rewards are worth: a schedule in disguise.',
    ),
    init: z.number().gt(0).lt(1).default(0.5).describe('Initial value.'),
    lo: fraction(0.1).describe('Lower bound of `mode: learnable_clamped`.'),
    hi: z.number().gt(0).max(1).default(0.9).describe('Upper bound of `mode: learnable_clamped`.'),
    learning_rate: positiveNumber(1e-3).describe('Learning rate of α in `mode: learnable_clamped`.'),
  }).describe('The balance: the loss is α (L_policy + vf_coef L_value) + (1 − α) L_constraint.'),
}).describe(
  'The constraint that separates the two verdict words and, over the whole vocabulary, keeps the policy on them.',
);

export const ablation = section({
  no_constraint: flag(false).describe('Plain PPO: the constraint is measured but not trained on.'),
  no_reward_network: flag(false).describe('Rewards are 1 for the right verdict, from the label itself.'),
}).describe('Parts of StepAMC to leave out.');
