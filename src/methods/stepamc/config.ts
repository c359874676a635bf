// `method: stepamc`: how it is configured.
import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { evaluation, verdictEvaluation } from '../../config/eval-sections.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import { type Conflict, conflict, type MethodSchema, withoutEffect } from '../../config/schema.js';
import { verdictSettings } from '../../scoring/settings.js';
import { sft } from '../sft/config.js';
import { ablation, constraint, rewardNetwork, verdictPpo } from './sections.js';

const schema = z.strictObject({
  method: z.literal('stepamc').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  sft,
  reward_network: rewardNetwork,
  verdict_ppo: verdictPpo,
  constraint,
  ablation,
  run,
  eval: evaluation,
  eval_verdicts: verdictEvaluation,
});

export type StepAmcRunConfig = z.output<typeof schema>;
export type RewardNetworkConfig = StepAmcRunConfig['reward_network'];
export type PpoConfig = StepAmcRunConfig['verdict_ppo'];
export type ConstraintConfig = StepAmcRunConfig['constraint'];

export const stepAmcConfig: MethodSchema<StepAmcRunConfig, z.input<typeof schema>> = {
  schema,
  sections: (config) => ({
    sft: config.sft,
    ppo: config.verdict_ppo,
    ...(hasNetwork(config) ? { reward_network: config.reward_network } : {}),
  }),
  conflicts,
  unread,
  judge(config, saved) {
    const words = verdictSettings(config);
    if (saved !== 'reward') return words;
    return { ...words, kind: 'reward_network', threshold: 0.5, pair_mode: config.reward_network.pair_mode };
  },
};

/** Whether a reward network is trained. */
export const hasNetwork = ({ ablation }: Pick<StepAmcRunConfig, 'ablation'>): boolean =>
  !ablation.no_reward_network;

/** Whether the run trains its warm-up, and does not begin with one. */
export const hasWarmUp = ({ sft }: Pick<StepAmcRunConfig, 'sft'>): boolean => sft.num_train_epochs > 0;

/** Centring of scores, with `auto` resolved. */
export function centering({
  center,
  pair_mode,
}: Pick<RewardNetworkConfig, 'center' | 'pair_mode'>): Exclude<RewardNetworkConfig['center'], 'auto'> {
  if (center !== 'auto') return center;
  return pair_mode === 'label' ? 'pair_mean' : 'running';
}

/** Whether training steps without a label are of use. */
export const usesUnlabelled = ({ verdict_ppo }: Pick<StepAmcRunConfig, 'verdict_ppo'>): boolean =>
  verdict_ppo.steps !== 'labelled';

/** Yields the keys that other keys leave without effect. */
function* unread(config: StepAmcRunConfig): Generator<Conflict> {
  const { constraint: own, ablation, reward_network: network, verdict_ppo: ppo } = config;
  const alpha = { ...constraint.parse({}).alpha };
  const idle = (keys: readonly (keyof typeof alpha)[], why: string) =>
    withoutEffect('constraint.alpha', own.alpha, { keys, why, defaults: alpha });
  if (ablation.no_constraint)
    yield* idle(
      ['mode', 'init', 'lo', 'hi', 'learning_rate'],
      'ablation.no_constraint leaves nothing to balance',
    );
  else if (own.alpha.mode === 'fixed')
    yield* idle(['lo', 'hi', 'learning_rate'], 'constraint.alpha.mode is fixed');
  const ofPpo = (keys: readonly (keyof PpoConfig)[], why: string) =>
    withoutEffect('verdict_ppo', ppo, { keys, why, defaults: verdictPpo.parse({}) });
  if (ablation.no_reward_network) {
    yield* withoutEffect('reward_network', network, {
      keys: ['init', 'pair_mode', 'margin', 'center_coef', 'update', 'center'],
      why: 'ablation.no_reward_network trains none',
      defaults: rewardNetwork.parse({}),
    });
    yield* ofPpo(['reward_clip'], 'ablation.no_reward_network takes rewards from the labels');
  } else yield* ofPpo(['wrong_reward'], 'rewards come from the reward network');
  if (ppo.rollout === 'enumerate')
    yield* ofPpo(['old_logprobs', 'invalid_reward'], 'verdict_ppo.rollout enumerate samples nothing');
}

function* conflicts(config: StepAmcRunConfig): Generator<Conflict> {
  const { model, data, constraint, ablation, reward_network: network, verdict_ppo: ppo, prompt } = config;
  if (typeof model.base !== 'string')
    yield conflict(
      'model.base',
      'method "stepamc" needs a trained base: name one, or pretrain one with method "pretrain" first',
    );
  const { lo, hi, init, mode } = constraint.alpha;
  if (mode === 'learnable_clamped' && !(lo < init && init < hi))
    yield conflict(
      'constraint.alpha.init',
      `constraint.alpha.init (${init}) must lie between lo (${lo}) and hi (${hi})`,
    );
  if (prompt.response_format === 'rationale_then_verdict' && ppo.rollout === 'enumerate')
    yield conflict(
      'verdict_ppo.rollout',
      'verdict_ppo.rollout "enumerate" scores the two words alone; with prompt.response_format "rationale_then_verdict" use "sample"',
    );
  if (network.pair_mode === 'step' && network.center === 'pair_mean')
    yield conflict(
      'reward_network.center',
      'reward_network.center "pair_mean" needs a score of each verdict, and reward_network.pair_mode "step" gives a step one score, whose zero is ' +
        'arbitrary; use "running"',
    );
  if (ablation.no_reward_network && ppo.steps !== 'labelled')
    yield conflict(
      'verdict_ppo.steps',
      `verdict_ppo.steps "${ppo.steps}" needs rewards for steps without a label, and ablation.no_reward_network takes rewards from the labels`,
    );
  if (usesUnlabelled(config)) {
    const user = `verdict_ppo.steps "${ppo.steps}" judges`;
    if (data.split_unit === 'sample')
      yield conflict(
        'data.split_unit',
        `${user} steps without a label, and with data.split_unit "sample" those are steps of the validation and test parts too; ` +
          `use split_unit "problem" or verdict_ppo.steps "labelled"`,
      );
    if (data.balance !== 'none')
      yield conflict(
        'data.balance',
        `${user} steps without a label, and those are also the ones whose label data.balance "${data.balance}" took away; ` +
          `use balance "none" (sft.class_weight weighs the classes) or verdict_ppo.steps "labelled"`,
      );
  }
}
