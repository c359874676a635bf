// `method: ppo`: how it is configured.
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { z } from 'zod';
import { adapterUse } from '../../config/adapter.js';
import { data } from '../../config/data.js';
import { evaluation } from '../../config/eval-sections.js';
import { lora, model } from '../../config/model.js';
import { questionWords } from '../../config/question.js';
import { run } from '../../config/run.js';
import { type Conflict, conflict, type MethodSchema, withoutEffect } from '../../config/schema.js';
import { wholeSolutions } from '../../config/whole-solutions.js';
import { areWordProblems } from '../../data/generated.js';
import { implicitSettings } from '../../scoring/settings.js';
import { ALGORITHMS, algorithmOf, comparesGroups } from './algorithms.js';
import { correctsSampler, importanceConflicts } from './importance.js';
import { IMPLICIT, reward } from './reward-sections.js';
import { ppo, rollout } from './sections.js';

const schema = z.strictObject({
  method: z.literal('ppo').describe('The training method.'),
  model,
  lora,
  data,
  rollout,
  reward,
  ppo,
  run,
  eval: evaluation,
});

export type PpoRunConfig = z.output<typeof schema>;
export type PpoSection = PpoRunConfig['ppo'];
export type RewardSection = PpoRunConfig['reward'];

/** Rewards that need a name, and its key. */
const NAMED = [
  ['steps', 'model'],
  ['outcome', 'model'],
  ['function', 'module'],
] as const;

export const ppoConfig: MethodSchema<PpoRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ ppo }) => ({ ppo }),
  words: ({ rollout }) => questionWords(rollout),
  algorithms: { key: ['ppo', 'algorithm'], names: ALGORITHMS },
  paths: ['reward.function.module'],
  models: ['reward.steps.model', 'reward.outcome.model'],
  conflicts,
  unread,
  judge(config, saved) {
    const { rollout, reward } = config;
    if (saved !== IMPLICIT) return undefined;
    return implicitSettings(config, { template: rollout.template, beta: reward.implicit.beta });
  },
};

function* conflicts({ model, lora, data, rollout, reward, ppo }: PpoRunConfig): Generator<Conflict> {
  yield* samplingConflicts('ppo', { model, lora, data, rollout });
  const { advantage, ratio, resample } = algorithmOf(ppo);
  const critic = advantage === 'critic' ? ppo.critic : undefined;
  if (critic === 'adapter' && lora === 'none')
    yield conflict('ppo.critic', 'ppo.critic "adapter" needs lora; without it use "trunk" or "model"');
  if (critic === 'model' && adapterUse(model).start !== undefined)
    yield conflict(
      'ppo.critic',
      'ppo.critic "model" begins with the base alone, and model.adapter names an adapter on it; use "adapter" or "trunk", or model.adapter_mode stack',
    );
  if (comparesGroups(ppo) && rollout.num_generations < 2)
    yield conflict(
      'rollout.num_generations',
      `ppo.algorithm "${ppo.algorithm}"${advantage === 'returns' ? ' with ppo.group_baseline' : ''} compares the solutions of a problem and needs at least 2; found ${rollout.num_generations}`,
    );
  if (rollout.server && rollout.server.max_staleness > 0) {
    if (ppo.old_logprobs !== 'sampler' && !correctsSampler({ ppo, rollout }))
      yield conflict(
        'rollout.server.max_staleness',
        'rollout.server.max_staleness has samples of an older policy, for which a ratio to their own log-probs corrects: set ' +
          `ppo.importance_sampling_correction to true, or ppo.old_logprobs to "sampler", found false and "${ppo.old_logprobs}"`,
      );
    if ((ppo.resample_equal === 'auto' ? (resample ?? 0) : ppo.resample_equal) > 0)
      yield conflict(
        'rollout.server.max_staleness',
        'rollout.server.max_staleness has the server draw the next rollout batch, and ppo.resample_equal would draw problems of this one ' +
          `again: set ppo.resample_equal to 0, found ${ppo.resample_equal} for ppo.algorithm "${ppo.algorithm}"`,
      );
  }
  if (rollout.environment !== undefined) yield* inEnvironment(rollout, reward);
  else if (reward.environment.weight !== 0)
    yield conflict(
      'reward.environment.weight',
      'reward.environment pays what an environment gives, and there is none; name one as rollout.environment',
    );
  yield* importanceConflicts(ppo);
  if (ppo.kl_target > 0 && ppo.kl_coef === 0)
    yield conflict(
      'ppo.kl_coef',
      'ppo.kl_target multiplies ppo.kl_coef, and 0 stays 0: set ppo.kl_coef above 0',
    );
  if (ppo.reference === 'none' && (ppo.kl_coef > 0 || ppo.kl_target > 0))
    yield conflict(
      'ppo.kl_coef',
      'ppo.reference "none" leaves nothing to keep near to: set ppo.kl_coef and kl_target to 0',
    );
  if (ppo.truncated === 'bootstrap' && critic === undefined)
    yield conflict('ppo.truncated', 'ppo.truncated "bootstrap" needs the critic of ppo.algorithm "ppo"');
  if (reward.length.weight !== 0 && reward.length.to <= reward.length.from)
    yield conflict('reward.length.to', 'reward.length.to must be above reward.length.from');
  for (const [name, key] of NAMED)
    if (reward[name].weight !== 0 && (reward[name] as Readonly<Record<string, unknown>>)[key] === undefined)
      yield conflict(
        `reward.${name}.weight`,
        `reward.${name} needs reward.${name}.${key}: name one, or set its weight to 0`,
      );
  if (reward.steps.until_wrong && reward.placement === 'step')
    yield conflict(
      'reward.steps.until_wrong',
      'reward.steps.until_wrong says which scores become one reward, and needs reward.placement "last": at each step, every step has its own',
    );
  if (reward.oracle.weight !== 0 && !areWordProblems(data.source))
    yield conflict(
      'reward.oracle.weight',
      'reward.oracle judges generated problems alone: it needs data.source "word_problems"',
    );
  if (reward.reference.weight !== 0 && areWordProblems(data.source))
    yield conflict(
      'reward.reference.weight',
      'reward.reference compares steps with worked solutions of rows, and generated problems have a plan in their place; use reward.oracle',
    );
  if (reward.implicit.weight !== 0 && lora === 'none')
    yield conflict(
      'reward.implicit.weight',
      'reward.implicit is an adapter beside the policy on one base, and lora is none; add lora, or train method "implicit_prm" first and name it as reward.steps.model',
    );
  if (advantage === 'process' && reward.implicit.weight === 0)
    yield conflict(
      'ppo.algorithm',
      'ppo.algorithm "prime" compares the rewards of tokens that reward.implicit gives: set reward.implicit.weight above 0, or choose "rloo"',
    );
  if ((advantage === 'group' || advantage === 'turns') && ratio === 'token' && reward.placement === 'step') {
    // Rewards of steps are compared with each other; others between them would be scaled with them, and compared with nothing.
    if (ppo.kl_in === 'reward' && ppo.kl_coef > 0)
      yield conflict(
        'ppo.kl_in',
        `ppo.kl_in "reward" puts the penalty between the rewards of steps that ppo.algorithm "${ppo.algorithm}" compares; use "loss", or ppo.algorithm "reinforce_pp"`,
      );
    if (reward.implicit.weight !== 0)
      yield conflict(
        'reward.placement',
        `reward.placement "step" with ppo.algorithm "${ppo.algorithm}" compares rewards of steps, and reward.implicit gives rewards of tokens; use ppo.algorithm "prime"`,
      );
  }
  if (advantage === 'group_apart') yield* comparedApart(ppo, reward);
  if (Object.values(reward).every((source) => typeof source !== 'object' || source.weight === 0))
    yield conflict('reward', 'reward has no source with a weight, so there is nothing to learn from');
}

const KEYS = { ppo: ppo.parse({}), reward: reward.parse({}), rollout: rollout.parse({}) };

/** Yields the keys that other keys leave without effect. */
function* unread(config: PpoRunConfig): Generator<Conflict> {
  const { ppo, reward, rollout } = config;
  const { advantage, ratio, surrogate, whitens } = algorithmOf(ppo);
  const idle = (keys: readonly (keyof PpoSection)[], why: string) =>
    withoutEffect('ppo', ppo, { keys, why, defaults: KEYS.ppo });
  const not = `ppo.algorithm is ${ppo.algorithm}`;
  if (advantage !== 'critic')
    yield* idle(
      ['critic', 'critic_learning_rate', 'critic_warmup', 'vf_coef', 'cliprange_value', 'lam'],
      `${not}, which has no critic`,
    );
  else if (ppo.critic === 'trunk')
    yield* idle(
      ['critic_learning_rate'],
      'ppo.critic is trunk, whose head learns at ten times ppo.learning_rate',
    );
  if (!['critic', 'returns', 'process', 'turns'].includes(advantage))
    yield* idle(['gamma'], `${not}, which discounts nothing`);
  if (!whitens) yield* idle(['whiten_advantages'], `${not}, which does not whiten`);
  if (advantage !== 'returns') yield* idle(['group_baseline'], `${not}, and it belongs to reinforce_pp`);
  if (surrogate === 'sapo') yield* idle(['cliprange', 'cliprange_high'], `${not}, which clips nothing`);
  else yield* idle(['sapo_temperature_pos', 'sapo_temperature_neg'], `${not}, and they belong to sapo`);
  // GSPO leaves out the division by the deviation with dr_grpo.
  if (ratio === 'answer' || (ratio === 'answer_mean' && ppo.loss_type !== 'dr_grpo'))
    yield* idle(['loss_type'], `${not}, where every solution counts the same`);
  if (ppo.kl_coef === 0)
    yield* idle(['kl_in', 'kl_estimator'], 'ppo.kl_coef is 0, so that nothing is penalised');
  if (ppo.kl_target === 0) yield* idle(['kl_horizon'], 'ppo.kl_target is 0, so that ppo.kl_coef is fixed');
  if (!correctsSampler({ ppo, rollout }))
    yield* idle(
      ['importance_sampling_mode', 'importance_sampling_clip_max', 'importance_sampling_clip_min'],
      'ppo.importance_sampling_correction is off here',
    );
  if (rollout.environment === undefined)
    yield* withoutEffect('rollout', rollout, {
      keys: ['max_turns', 'turn_timeout'],
      why: 'there is no rollout.environment',
      defaults: KEYS.rollout,
    });
  yield* unreadRewards(reward);
}

function* unreadRewards(reward: RewardSection): Generator<Conflict> {
  const idle = (keys: readonly (keyof RewardSection)[], why: string) =>
    withoutEffect('reward', reward, { keys, why, defaults: KEYS.reward });
  if (reward.placement === 'last')
    yield* idle(['bound', 'bound_margin'], 'reward.placement is last, and they bound rewards of steps');
  else if (reward.bound !== 'clip') yield* idle(['bound_margin'], 'reward.bound is not clip');
  for (const [name, source] of Object.entries(reward)) {
    if (typeof source !== 'object' || source.weight !== 0) continue;
    // Sweeps give these to every source.
    const common: readonly string[] = ['weight', 'scale', 'clip', 'whiten', 'shuffle'];
    const keys = Object.keys(source).filter((key) => !common.includes(key)) as (keyof typeof source)[];
    const defaults = KEYS.reward[name as 'rule'] as typeof source;
    yield* withoutEffect(`reward.${name}`, source, {
      keys,
      defaults,
      why: `reward.${name}.weight is 0; set it, or leave the key out`,
    });
  }
}

/** Checks that nothing is asked of episodes that only texts have. */
function* inEnvironment(rollout: PpoRunConfig['rollout'], reward: RewardSection): Generator<Conflict> {
  if (rollout.server)
    yield conflict(
      'rollout.server',
      'rollout.server writes whole solutions, and rollout.environment answers turn by turn, in this process; leave one of them out',
    );
  if (rollout.stop.length > 0)
    yield conflict(
      'rollout.stop',
      'rollout.stop ends texts, and the turns of rollout.environment end as their template ends them',
    );
  for (const name of ['reference', 'implicit'] as const)
    if (reward[name].weight !== 0)
      yield conflict(
        `reward.${name}.weight`,
        `reward.${name} reads solutions without turns, and rollout.environment gives episodes; use reward.steps, oracle, environment or function`,
      );
}

/** Conflicts of every method whose policy samples solutions. */
export function* samplingConflicts(
  method: string,
  { model, lora, data, rollout }: Pick<PpoRunConfig, 'model' | 'lora' | 'data' | 'rollout'>,
): Generator<Conflict> {
  yield* wholeSolutions(method, data);
  if (typeof model.base !== 'string')
    yield conflict(
      'model.base',
      `method "${method}" needs a trained base: name one, or pretrain one with method "pretrain" first`,
    );
  if (data.source === 'arithmetic')
    yield conflict(
      'data.source',
      'data.source "arithmetic" has no final answers; use "word_problems", "problems" or rows with gold_answer',
    );
  if (rollout.server) yield* publishing(rollout.server, lora === 'none', model.base);
  if (rollout.server && rollout.temperature !== 1)
    yield conflict(
      'rollout.temperature',
      `rollout.server gives log-probs at temperature 1 alone; set rollout.temperature to 1, found ${rollout.temperature}`,
    );
  const shares = Object.values(rollout.mix);
  if (shares.length > 0 && shares.every((weight) => weight === 0))
    yield conflict(
      'rollout.mix',
      'rollout.mix has no group with a weight above 0, so there is no problem to solve',
    );
  if (rollout.max_new_tokens >= data.max_length)
    yield conflict(
      'rollout.max_new_tokens',
      `rollout.max_new_tokens (${rollout.max_new_tokens}) leaves no token of data.max_length (${data.max_length}) for a problem`,
    );
}

/** Checks GDPO: everything that is rewarded must be a source of its own that gives one number to a solution. */
function* comparedApart(ppo: PpoSection, reward: RewardSection): Generator<Conflict> {
  const refused = (key: string, why: string) => conflict(key, `ppo.algorithm "gdpo" ${why}`);
  if (reward.placement === 'step')
    yield refused(
      'reward.placement',
      'normalises each source’s reward of a whole solution, and reward.placement is "step"; use "last", or ppo.algorithm "grpo"',
    );
  if (reward.implicit.weight !== 0)
    yield refused(
      'reward.implicit.weight',
      'normalises rewards of whole solutions, and reward.implicit gives rewards of tokens; use ppo.algorithm "prime"',
    );
  if (ppo.kl_in === 'reward' && ppo.kl_coef > 0)
    yield refused(
      'ppo.kl_in',
      'normalises each source apart, and ppo.kl_in "reward" would add the penalty to none of them; use "loss"',
    );
  if (ppo.missing_eos_penalty > 0)
    yield refused(
      'ppo.missing_eos_penalty',
      'normalises each source apart, and ppo.missing_eos_penalty belongs to none; use reward.length, or ppo.truncated "lowest"',
    );
}

/** Conflicts in the way in which a server gets the policy. */
function* publishing(
  { kind, adapters, weights, max_staleness: ahead }: NonNullable<PpoRunConfig['rollout']['server']>,
  whole: boolean,
  base: PpoRunConfig['model']['base'],
): Generator<Conflict> {
  if (!whole && adapters === undefined)
    yield conflict(
      'rollout.server.adapters',
      'rollout.server gets the policy as an adapter: name a folder that both see as rollout.server.adapters',
    );
  if (!whole) return;
  if (kind === 'steptrain')
    yield conflict(
      'rollout.server.kind',
      'steptrain serve takes the policy as an adapter alone, and lora is none; add lora, or take a vllm or sglang',
    );
  if (weights === undefined)
    yield conflict(
      'rollout.server.weights',
      'with lora none the server reads all weights of the policy anew: name the model directory that it was started on, a copy of ' +
        'model.base, as rollout.server.weights; or add lora',
    );
  else if (typeof base === 'string' && isSamePlace(weights, base))
    yield conflict(
      'rollout.server.weights',
      `rollout.server.weights is written over, and ${base} is model.base; start the server on a copy of it and name that`,
    );
  if (ahead > 0)
    yield conflict(
      'rollout.server.max_staleness',
      'rollout.server.weights holds the weights of one policy, so nothing is drawn ahead; set rollout.server.max_staleness to 0, or add lora',
    );
}

function isSamePlace(one: string, other: string): boolean {
  const [a, b] = [one, other].map((path) => (existsSync(path) ? realpathSync(path) : resolve(path)));
  return a === b;
}
