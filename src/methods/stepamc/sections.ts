// Config sections of StepAMC: the reward network, the policy, its constraint, ablations and baselines.
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

const headRate = () =>
  positiveNumber(10).describe(
    'Multiplies the learning rate for the scalar head, which starts from random numbers.',
  );

export const frn = section({
  ...optimization({ learning_rate: 1e-4 }),
  head_rate: headRate(),
  init: choice('base', 'sft').describe(
    'Initial adapter: new on the base (a copy of model.adapter if that is continued), or a copy of the warmed-up policy, which learns faster.',
  ),
  pair_mode: choice('label', 'step').describe(
    'What is compared: the right verdict with the wrong one after the same step (`label`), or a right step with a ' +
      'wrong one of the same problem (`step`; after the same steps if possible).',
  ),
  margin: nonNegative(0).describe('Margin subtracted from the score difference of each pair.'),
  center_coef: nonNegative(0).describe(
    'Weight of the squared sum of a pair’s scores, which keeps scores near 0.',
  ),
  update: choice('frozen', 'joint').describe(
    '`joint` continues to train the network on every rollout batch while the policy learns from it, as our source has ' +
      'it; its tokens count in the budget of the baselines.',
  ),
  center: choice('auto', 'pair_mean', 'running', 'none').describe(
    'How a score becomes a reward: minus the mean of both verdicts’ scores (`pair_mean`), normalised by running mean and ' +
      'standard deviation (`running`), or unchanged. A pairwise loss leaves the zero of the scores undetermined. `auto` is ' +
      '`pair_mean` for `pair_mode: label`, and `running` for `step`, where a step has one score and no mean of two.',
  ),
}).describe('The fine-grained reward network: an adapter and a scalar head on the same base.');

export const verdictPpo = section({
  ...updates({ learning_rate: 5e-6, lr_scheduler_type: 'linear' }),
  head_rate: headRate(),
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
    .describe('With ablation.no_frn: reward of a wrong verdict; a right one gets 1.'),
}).describe('Proximal policy optimisation of the verdicts.');

export const constraint = section({
  form: choice('class_balanced_full', 'class_balanced', 'ce_two', 'ce_full', 'mass', 'margin').describe(
    'Cross-entropy of the right word over the whole vocabulary, averaged per class (`class_balanced_full`) or over all ' +
      '(`ce_full`); among the two words alone, which leaves the probability of every other word free ' +
      '(`class_balanced`, `ce_two`); −log of the two words’ total probability (`mass`); or a margin between their ' +
      'log-probs (`margin`).',
  ),
  margin: positiveNumber(1).describe('Of `form: margin`.'),
  combine: choice('rl', 'policy', 'constraint').describe(
    'What α weights, with 1 − α on the constraint: policy and value loss (`rl`), the policy loss alone ' +
      '(`policy`), or neither (`constraint`). Not read with `alpha.mode: uncertainty`, which weights the constraint alone.',
  ),
  alpha: section({
    mode: choice('fixed', 'learnable_clamped', 'uncertainty', 'schedule').describe(
      'Fixed; learned within lo … hi; the constraint weighted by a learned uncertainty instead of 1 − α; or linear ' +
        'from init to final. The surrogate loss stays near 0 and the constraint does not, so a learned α rises towards ' +
        'hi whatever the rewards are worth: a schedule in disguise.',
    ),
    init: z.number().gt(0).lt(1).default(0.5).describe('Initial value.'),
    final: z.number().gt(0).lt(1).default(0.5).describe('Final value of `mode: schedule`.'),
    lo: fraction(0.1).describe('Lower bound of `mode: learnable_clamped`.'),
    hi: z.number().gt(0).max(1).default(0.9).describe('Upper bound of `mode: learnable_clamped`.'),
    learning_rate: positiveNumber(1e-3).describe('Learning rate of α in the learned modes.'),
  }).describe('The balance between reinforcement and constraint.'),
}).describe(
  'The constraint that separates the two verdict words and, in the forms over the whole vocabulary, keeps the policy on them.',
);

export const sftContinued = section({
  ...optimization({ learning_rate: 5e-6 }),
}).describe(
  'Continued SFT, as `baseline` or in `compare_with`: for the tokens of reward network and policy, whatever num_train_epochs. ' +
    'A fair comparison tries the same learning rates for it as for the policy.',
);

export const pseudoLabels = section({
  ...optimization({ learning_rate: 5e-6 }),
  by: z
    .enum(['sft', 'frn', 'both'])
    .default('both')
    .describe(
      'Who labels the unlabelled training steps: the warm-up (`sft`), the reward network (`frn`), or both where they agree.',
    ),
  min_probability: z
    .number()
    .min(0.5)
    .max(1)
    .default(0.5)
    .describe('A label less probable than this is left out.'),
}).describe(
  'With baseline: pseudo_labels: supervised training on labels and pseudo-labels, for the tokens of the policy (and, with ' +
    '`by: sft`, of the reward network), whatever num_train_epochs.',
);

export const verdictDpo = section({
  ...optimization({ learning_rate: 5e-6 }),
  beta: positiveNumber(0.1).describe('Strength of the regularisation towards the reference.'),
  label_smoothing: fraction(0).describe('Share of labels assumed to be wrong.'),
}).describe(
  'With baseline: dpo, instead of the policy optimisation: for the tokens of reward network and policy, whatever num_train_epochs.',
);

export const ablation = section({
  no_scpn: flag(false).describe('Plain PPO: the constraint is measured but not trained on.'),
  no_frn: flag(false).describe('Rewards are 1 for the right verdict, from the label itself.'),
}).describe('Parts of StepAMC to leave out.');

export const baseline = choice('none', 'sft', 'sft_continued', 'dpo', 'pseudo_labels').describe(
  'What to train instead of reward network and policy, after the same warm-up: nothing (`sft`), more SFT for the ' +
    'tokens that they would have used (`sft_continued`), DPO on the verdicts for those tokens (`dpo`), or SFT on the ' +
    'unlabelled steps too, as the warm-up or the network label them (`pseudo_labels`).',
);

export const compareWith = z
  .array(z.enum(['sft_continued']))
  .max(1)
  .default([])
  .describe(
    'What to train besides, from the same warm-up and for the same tokens as policy and, if there is one, reward network, to be ' +
      'judged on the same steps: `[sft_continued]`. It ends up in the table and in eval.json, not in adapter/. Nothing is trained besides with a baseline.',
  );
