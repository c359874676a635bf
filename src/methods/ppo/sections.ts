// Config sections of `method: ppo`: how solutions are sampled, and how the policy learns from them.
import { z } from 'zod';
import {
  choice,
  count,
  countOrOff,
  flag,
  nonNegative,
  optionalText,
  patterned,
  positiveNumber,
  section,
  share,
  text,
} from '../../config/fields.js';
import { sampling } from '../../config/sampling.js';
import { rollouts, updates } from '../../config/training.js';
import { IMPORTANCE_MODES } from '../../train/policy/importance.js';
import { ALGORITHMS } from './algorithms.js';

const server = z
  .strictObject({
    url: z
      .union([text(), z.array(text()).min(1)])
      .describe(
        'Without /v1, such as http://127.0.0.1:8000; or a list of servers that have the same base and see the same folder, among which the prompts are spread.',
      ),
    kind: choice('steptrain', 'vllm', 'sglang').describe('The kind of server.'),
    model: text('base').describe('The base’s name at that server.'),
    adapters: optionalText().describe(
      'With LoRA: folder into which the policy’s adapter is written for the server before each rollout batch.',
    ),
    weights: optionalText().describe(
      'With `lora: none`: the model directory that a vLLM or SGLang was started on, a copy of `model.base`. Before each rollout batch its ' +
        'weights are written over with the policy’s, and the server reads them anew.',
    ),
    adapters_seen_as: optionalText().describe(
      'The same folder as the server sees it, where that is another path.',
    ),
    key_env: text('STEPTRAIN_API_KEY').describe('Environment variable with its key.'),
    attempts: count(8).describe(
      'Tries of a request, half a second and then twice as long apart; after them one of several servers is left out until it answers again.',
    ),
    timeout: positiveNumber(300).describe('Seconds without a byte after which a request is tried again.'),
    max_staleness: countOrOff(0).describe(
      'Rollout batches that the server draws ahead while the policy learns: each comes from a policy that is at most so many rollout ' +
        'batches older than the one that learns from it. 0: the policy waits for the server. More needs `ppo.importance_sampling_correction`, or ' +
        '`ppo.old_logprobs: sampler`.',
    ),
    max_difference: positiveNumber(0.5).describe(
      'Nats by which the log-probs of a token may differ on average between the server and the policy that it was given, before the run ' +
        'learns from them: where they differ more, the server has another adapter or base, and the run ends with a sentence. ' +
        '`sampler_difference` is what they do; of batches drawn ahead it has the age in it.',
    ),
  })
  .describe(
    'A server that has the base, to sample rollouts there instead of in this process; it loads the policy as an adapter, or all its weights.',
  );

export const rollout = section({
  ...sampling({ num_generations: 8 }),
  num_generations_eval: count(1).describe(
    'Solutions of each held-out problem: one is the most likely one, several are sampled at temperature 1.',
  ),
  template: text('auto').describe(
    'The text that asks for a solution, with the placeholder {problem}. `auto` is a request in the tokenizer’s chat template ' +
      'or, without one, `Question:`, the problem, and `Answer:`.',
  ),
  environment: optionalText().describe(
    'Solutions are episodes of turns in it: `calculator`, `boxes`, an address, a module of JavaScript, or a command that speaks lines of ' +
      'JSON. Prompts are what it opens episodes with, by the chat template with its tools; `max_new_tokens` are those of a turn, and ' +
      '`data.max_length` those of an episode.',
  ),
  max_turns: count(8).describe('Most turns of an episode; one that is not done then counts as truncated.'),
  turn_timeout: positiveNumber(30).describe(
    'Seconds that the environment may take for an answer, after which its episode is left out.',
  ),
  mix: patterned(nonNegative()).describe(
    'How often each group of training problems is drawn, by name: a level of generated problems (`level 1`), or a file of `data.train` ' +
      'without its ending, where that is a directory or a pattern. Groups that are not named are left out. Default: every problem ' +
      'as often as any other.',
  ),
  server: server.optional(),
}).describe('How solutions are sampled (`method: ppo` and `distill`).');

const auto = <T extends z.ZodType>(value: T) => z.union([z.literal('auto'), value]).default('auto');

export const ppo = section({
  ...updates({
    learning_rate: 1e-5,
    micro_batch_tokens: 4096,
    warmup_ratio: 0,
    lr_scheduler_type: 'constant',
  }),
  learning_rate: auto(positiveNumber()).describe(
    'Peak learning rate of AdamW; `auto` is 1e-5 for LoRA and 1e-6 where every parameter is trained. Models of a few million ' +
      'parameters bear a hundred times more.',
  ),
  algorithm: z
    .enum(ALGORITHMS)
    .default('ppo')
    .describe(
      'Where advantages come from and what is clipped: a critic (`ppo`; `turn_ppo` by turn), the group of a problem (`grpo`; `dapo` with a wider clip and groups drawn again; `dr_grpo` without ' +
        'division by deviation and length; `cispo` with clipped weights, so that every token has a gradient; `sapo` with a soft gate in place of ' +
        'the clip; `turn_grpo` with the returns from each step or turn on, compared by its number; `gspo` with one ratio per solution), the group apart for each source of rewards (`gdpo`), the other solutions of the group (`rloo`, one ratio per solution), returns whitened over the batch ' +
        '(`reinforce_pp`), or the other solutions, apart for outcomes and for the rewards of tokens that `reward.implicit` gives (`prime`).',
    ),
  num_train_epochs: positiveNumber(1).describe('Passes over the training problems.'),
  rollout_batch: count(32).describe('Problems per rollout batch.'),
  resample_equal: auto(countOrOff()).describe(
    'How often a problem whose solutions all have the same reward, length and form aside, is sampled again, since such a group teaches nothing; `auto` is 3 for ' +
      '`dapo`, else 0.',
  ),
  ...rollouts({ num_ppo_epochs: 1 }),
  old_logprobs: choice('rescore', 'sampler').describe(
    'Old log-probs of the ratio: from the training forward (the first ratio is exactly 1) or from the sampler. ' +
      'Their difference is logged either way.',
  ),
  importance_sampling_correction: auto(z.boolean()).describe(
    'Multiply the policy loss by the ratio of the trainer’s probability to the sampler’s, within bounds, where they differ: a server ' +
      'rounds otherwise, or drew from an older policy. `auto` is true with `rollout.server` and `old_logprobs` `rescore`, else false.',
  ),
  importance_sampling_mode: choice(...IMPORTANCE_MODES).describe(
    'One ratio for a whole solution or one for each token; outside the bounds it is 0 (`mask`, so nothing is learned there) or the bound ' +
      '(`truncate`).',
  ),
  importance_sampling_clip_max: nonNegative(3).describe('Upper bound of that ratio; 0: none.'),
  importance_sampling_clip_min: nonNegative(0).describe('Lower bound of that ratio; 0: none.'),
  gamma: share(1).describe(
    'Discount per token, of `ppo`, `reinforce_pp` and `prime`; per turn of `turn_grpo` and `turn_ppo`.',
  ),
  lam: share(1).describe('λ of generalised advantage estimation, of `ppo` by token, of `turn_ppo` by turn.'),
  cliprange: auto(z.number().gt(0).lt(1)).describe(
    'The ratio counts down to 1 − this; `auto` is 0.2, for `gspo` 3e-4, for `cispo` no bound. Not of `sapo`.',
  ),
  cliprange_high: auto(positiveNumber()).describe(
    'The ratio counts up to 1 + this; `auto` is `cliprange`, for `dapo` 0.28, for `gspo` 4e-4, for `cispo` 4. Not of `sapo`.',
  ),
  sapo_temperature_pos: positiveNumber(1).describe(
    'For `sapo`: how fast the weight of a token falls as its ratio leaves 1, if the advantage is positive.',
  ),
  sapo_temperature_neg: positiveNumber(1.05).describe('The same if the advantage is not positive.'),
  loss_type: auto(z.enum(['grpo', 'dapo', 'dr_grpo'])).describe(
    'The weight of a token: `grpo` takes the mean over each solution, then over solutions; `dapo` the mean over all tokens; `dr_grpo` a share of ' +
      'rollout.max_new_tokens, and advantages are not divided by the deviation of their group. `auto` is `dapo`, for `sapo` `grpo`, for `dr_grpo` itself. Not of `gspo` and ' +
      '`rloo`, where every solution counts the same.',
  ),
  group_baseline: flag(false).describe(
    'For `reinforce_pp`: first subtract from each reward the mean over the problem’s solutions at the same place, for steps at the same number.',
  ),
  whiten_advantages: flag(true).describe(
    'Normalise the advantages of a rollout batch to mean 0 and standard deviation 1, of `ppo`, `reinforce_pp` and `prime`.',
  ),
  reference: choice('base', 'none').describe(
    'The reference of the KL: the model that the run began with, or none, which saves its forward.',
  ),
  kl_in: auto(z.enum(['reward', 'loss'])).describe(
    'Subtract the penalty from the reward of each token, or add it to the loss. `auto` is the reward for `ppo`, `rloo`, `prime` ' +
      'and `reinforce_pp` without `group_baseline`, else the loss.',
  ),
  kl_estimator: auto(z.enum(['k1', 'k2', 'k3'])).describe(
    'Estimator of the penalty from d = log-prob − reference log-prob: d, d²/2 or exp(−d) − 1 + d. `auto` is `k1` in the reward and ' +
      '`k2` in the loss, where `k1` has no gradient in expectation.',
  ),
  kl_target: nonNegative(0).describe(
    'Adapts kl_coef after each rollout batch so that the KL of a solution (nats, summed over its tokens) stays near this; 0: kl_coef is ' +
      'fixed.',
  ),
  kl_horizon: positiveNumber(2000).describe(
    'With kl_target: solutions over which kl_coef adapts; fewer adapt faster.',
  ),
  kl_stop: nonNegative(0).describe(
    'Leave out the rest of a rollout batch once the policy is farther than this from the one that sampled it (mean k3 per token); 0: never.',
  ),
  critic: choice('trunk', 'adapter', 'model').describe(
    'The critic of `ppo`: a value head on the policy’s own hidden states, on an adapter of its own (with lora), or on a second model ' +
      'that is trained whole.',
  ),
  critic_learning_rate: positiveNumber(1e-4).describe(
    'Learning rate of a critic on its own adapter or model, whose head learns at ten times it; the head on a trunk learns at ten times learning_rate.',
  ),
  critic_warmup: countOrOff(20).describe(
    'Steps at the start that train the critic alone: on a trunk that is shared, its head alone. The policy’s optimizer begins after them.',
  ),
  truncated: choice('lowest', 'keep', 'mask', 'bootstrap').describe(
    'A solution that was cut off at max_new_tokens: gets the lowest reward of its rollout batch; keeps its own; is not learned from ' +
      '(overlong filtering); or goes on from the critic’s value of its end, in place of a reward of the whole.',
  ),
  missing_eos_penalty: nonNegative(0).describe('Subtracted from the reward of a solution that was cut off.'),
  branches: flag(true).describe(
    'Compute a prompt once for all of its solutions, as branches of one sequence; false: each solution with its own prompt.',
  ),
}).describe('Policy optimisation on solutions (`method: ppo`).');
