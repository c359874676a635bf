// What `auto` stands for, what is warned of, and paths that stay where they were.
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { type PpoRunConfig, ppoConfig } from '../../../src/methods/ppo/config.js';
import { settingWarnings, settled } from '../../../src/methods/ppo/settings.js';
import { withAbsolutePaths } from '../../../src/run/paths.js';

const configOf = (more: object) =>
  completeRunConfig({
    method: 'ppo',
    data: { source: 'word_problems' },
    ...more,
  } as never) as PpoRunConfig;

it('auto follows algorithm and lora', () => {
  const of = (ppo: object, lora: unknown = 'none') => settled(configOf({ ppo, lora }));
  expect(of({})).toMatchObject({
    learning_rate: 1e-6,
    cliprange: 0.2,
    cliprange_high: 0.2,
    kl_in: 'reward',
    kl_estimator: 'k1',
    kl_coef: 0.02,
    gamma: 1,
    lam: 1,
    critic_warmup: 20,
    truncated: 'lowest',
  });
  expect(of({ algorithm: 'gspo' }, { r: 4 })).toMatchObject({
    learning_rate: 1e-5,
    cliprange: 3e-4,
    cliprange_high: 4e-4,
    kl_in: 'loss',
    kl_estimator: 'k2',
  });
  expect(of({ algorithm: 'dapo' })).toMatchObject({
    ...{ cliprange: 0.2, cliprange_high: 0.28, loss_type: 'dapo', kl_in: 'loss', resample_equal: 3 },
  });
  expect(of({ algorithm: 'dapo', resample_equal: 1 }).resample_equal).toBe(1);
  expect(of({ algorithm: 'grpo' }).resample_equal).toBe(0);
  expect(of({ algorithm: 'grpo', cliprange: 0.1 })).toMatchObject({ cliprange: 0.1, cliprange_high: 0.1 });
  expect(of({ algorithm: 'dr_grpo' })).toMatchObject({ loss_type: 'dr_grpo', kl_in: 'loss' });
  expect(of({ algorithm: 'sapo' })).toMatchObject({ loss_type: 'grpo', sapo_temperature_neg: 1.05 });
  expect(of({ algorithm: 'cispo' })).toMatchObject({ loss_type: 'dapo', cliprange: 1, cliprange_high: 4 });
  // REINFORCE++ has its penalty in the reward, REINFORCE++-baseline in the loss, as the paper and OpenRLHF's runs.
  const algorithm = 'reinforce_pp';
  expect(of({ algorithm })).toMatchObject({ kl_in: 'reward', kl_estimator: 'k1' });
  const baseline = { algorithm, group_baseline: true };
  expect(of(baseline)).toMatchObject({ kl_in: 'loss', kl_estimator: 'k2' });
  expect(of({ ...baseline, kl_in: 'reward' })).toMatchObject({ kl_in: 'reward', kl_estimator: 'k1' });
  expect(of({ algorithm: 'rloo', group_baseline: true })).toMatchObject({ kl_in: 'reward' });
});

it('corrects for a sampler by default where a server samples, unless the ratio is to the sampler itself', () => {
  const server = { url: 'http://127.0.0.1:1', adapters: '/a' };
  const of = (ppo: object, rollout: object = { server }) =>
    settled(configOf({ ppo, rollout, lora: { r: 4 } }));
  expect(of({})).toMatchObject({
    importance_sampling_correction: true,
    importance_sampling_mode: 'sequence_mask',
    importance_sampling_clip_max: 3,
    importance_sampling_clip_min: 0,
  });
  expect(of({}, {}).importance_sampling_correction).toBe(false);
  expect(of({ old_logprobs: 'sampler' }).importance_sampling_correction).toBe(false);
  expect(of({ importance_sampling_correction: true }, {}).importance_sampling_correction).toBe(true);
});

it.each([
  [{ importance_sampling_correction: true, old_logprobs: 'sampler' }, /would count their difference twice/],
  [{ importance_sampling_clip_min: 3 }, /must be below ppo\.importance_sampling_clip_max, found 3 and 3/],
  [{ importance_sampling_mode: 'token_truncate', importance_sampling_clip_max: 0 }, /needs a bound/],
  [{ algorithm: 'gdpo', missing_eos_penalty: 1 }, /gdpo" .*missing_eos_penalty belongs to none/],
  [{ algorithm: 'gdpo', kl_in: 'reward' }, /gdpo" .* "reward" would add the penalty to none/],
])('refuses %j', (ppo, sentence) => {
  expect(() => configOf({ ppo })).toThrow(sentence);
});

it('refuses gdpo with rewards of steps or tokens', () => {
  const of = (reward: object) => configOf({ ppo: { algorithm: 'gdpo' }, lora: { r: 4 }, reward });
  expect(() => of({ placement: 'step' })).toThrow(/reward\.placement is "step"; use "last"/);
  expect(() => of({ implicit: { weight: 1 } })).toThrow(/reward\.implicit gives rewards of tokens/);
});

it('warns of what is sampled otherwise than it is trained, and of a penalty without effect', () => {
  expect(settingWarnings(configOf({}))).toEqual([]);
  expect(settingWarnings(configOf({ rollout: { top_p: 0.9, top_k: 5, temperature: 0.7 } }))).toEqual([
    expect.stringMatching(/^rollout\.top_p, rollout\.top_k leaves out tokens/),
    expect.stringMatching(/^rollout\.temperature 0\.7/),
  ]);
  expect(settingWarnings(configOf({ ppo: { kl_in: 'loss', kl_estimator: 'k1' } }))).toHaveLength(1);
});

it('scores up to the first wrong step are put together, not given to steps', () => {
  const steps = { weight: 1, model: 'runs/prm', until_wrong: true };
  expect(configOf({ reward: { steps } }).reward.steps.until_wrong).toBe(true);
  expect(() => configOf({ reward: { steps, placement: 'step' } })).toThrow(
    /reward\.steps\.until_wrong.*reward\.placement "last"/,
  );
});

it('refuses rewards of tokens between the rewards of steps that grpo compares', () => {
  const grpo = (ppo: object, reward: object = {}) =>
    configOf({
      lora: { r: 4 },
      ppo: { algorithm: 'grpo', ...ppo },
      reward: { placement: 'step', steps: { weight: 1, model: 'runs/prm' }, ...reward },
    });
  expect(settled(grpo({})).kl_in).toBe('loss');
  expect(() => grpo({ kl_in: 'reward' })).toThrow(/ppo\.kl_in "reward" puts the penalty between/);
  expect(grpo({ kl_in: 'reward', kl_coef: 0 }).ppo.kl_in).toBe('reward');
  expect(() => grpo({}, { implicit: { weight: 1 } })).toThrow(/reward\.placement "step"/);
});

it('paths of rewards become absolute, other texts stay', () => {
  const reward = { function: { module: 'a/b.mjs' }, steps: {} };
  const paths = ['reward.function.module', 'reward.steps.model', 'none.at.all'];
  expect(withAbsolutePaths({ reward, other: 'x' }, { paths }, '/here')).toEqual({
    reward: { function: { module: '/here/a/b.mjs' }, steps: {} },
    other: 'x',
  });
});

it('names of models become absolute paths where they are here', () => {
  const { models = [] } = ppoConfig;
  const named = (model: string) =>
    withAbsolutePaths({ reward: { steps: { model } } }, { models }, process.cwd()).reward.steps.model;
  expect(named('src')).toBe(resolve('src'));
  for (const name of ['word-problems', 'owner/name']) expect(named(name)).toBe(name);
});
