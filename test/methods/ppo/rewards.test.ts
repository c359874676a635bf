// What solutions of a rollout batch get: rewards on tokens, and what becomes of those that were cut off.
import { afterAll, describe, expect, it } from 'vitest';
import { solutionAdvantage } from '../../../src/methods/ppo/advantage.js';
import { type SolutionRewardOptions, solutionRewards } from '../../../src/methods/ppo/rewards.js';
import type { SolutionAnswer } from '../../../src/methods/ppo/rollout.js';
import type { WeightedSource } from '../../../src/rewards/mixture.js';
import type { RewardedSolution, SourceReward } from '../../../src/rewards/reward.js';
import { lengthReward } from '../../../src/rewards/rules.js';
import { stepScoreReward } from '../../../src/rewards/step-scores.js';
import { scorer } from '../../../src/scoring/scorer.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import type { AnswerReward } from '../../../src/train/policy/records.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());
const tokenizer = byteTokenizer();
const END = tokenizer.eosId as number;

/** A solution of steps `a`, `b` …; one that ended has its end token. */
function answer(text: string, { truncated = false } = {}): SolutionAnswer {
  const tokens = [...tokenizer.encode(text), ...(truncated ? [] : [END])];
  const each = tokens.map(() => 0);
  return {
    tokens,
    text,
    truncated,
    oldLogprobs: each,
    refLogprobs: each,
    samplerLogprobs: each,
    values: each,
  };
}

const source = (name: string, of: (solution: RewardedSolution) => SourceReward): WeightedSource => ({
  weight: 1,
  scale: 1,
  clip: 0,
  whiten: false,
  reward: { name, score: async (solutions) => solutions.map(of) },
});
/** 0.9 for each step `a`, 0.2 for any other. */
const scoreOf = (step: string) => (step === 'a' ? 0.9 : 0.2);
const steps: WeightedSource = {
  ...source('', () => ({ value: 0 })),
  reward: stepScoreReward(
    scorer({
      name: 'steps',
      score: async (asked) => asked.map((one) => ({ tokens: 1, scores: one.steps.map(scoreOf) })),
    }),
    { name: 'steps', aggregation: 'min' },
  ),
};
const rule = source('rule', ({ text }) => ({ value: text.startsWith('a') ? 1 : 0 }));

async function rewarded(
  answers: SolutionAnswer[],
  sources: WeightedSource[],
  settings: Partial<SolutionRewardOptions['settings']> = {},
  implicit?: SolutionRewardOptions['implicit'],
): Promise<AnswerReward[]> {
  const given = await solutionRewards({
    sources: async () => sources,
    problemOf: () => ({ problem: '', answer: '' }),
    tokenizer,
    seed: 1,
    implicit,
    settings: {
      algorithm: 'ppo',
      placement: 'step',
      bound: 'none',
      bound_margin: 0.5,
      truncated: 'lowest',
      missing_eos_penalty: 0,
      ...settings,
    },
  }).reward([{ item: 0, answers }], { items: [0], iteration: 0, signal: new AbortController().signal });
  return given?.byGroup[0] as AnswerReward[];
}

const answers = [answer('a\na'), answer('a\nb'), answer('b\na\na\na\na\na', { truncated: true })];

it('wrong solutions of other lengths have one outcome, by which DAPO draws their group again', async () => {
  const length = { ...source('length', () => ({ value: 0 })), reward: lengthReward({ from: 2, to: 8 }) };
  const wrong = [answer('b'), answer('bbbb'), answer('bbbbbbbb', { truncated: true })];
  const own = await rewarded(wrong, [rule, length], { placement: 'last' });
  expect(own.map(({ value }) => value)).toEqual([0, -0.5, -1]);
  expect(own.map(({ outcome }) => outcome)).toEqual([0, 0, 0]);
  const [right] = await rewarded([answer('abbb')], [rule, length], { placement: 'last' });
  expect(right).toMatchObject({ value: 0.5, outcome: 1 });
  expect((await rewarded(wrong, [rule], { placement: 'last' }))[0]).not.toHaveProperty('outcome');
});

describe('a solution that was cut off', () => {
  it.each(['none', 'clip', 'delta'] as const)('has the lowest reward, steps bounded by %s', async (bound) => {
    const [right, half, cut] = await rewarded(answers, [steps], { bound });
    expect(cut?.value).toBeCloseTo(Math.min(right!.value, half!.value, cut!.value), 10);
    expect(cut!.value).toBeLessThanOrEqual(half!.value);
    expect(cut!.byToken.reduce((sum, reward) => sum + reward, 0)).toBeCloseTo(cut!.value, 10);
  });

  it.each(['ppo', 'grpo', 'rloo', 'gspo', 'reinforce_pp'] as const)(
    'has the lowest advantage by %s where steps are rewarded',
    async (algorithm) => {
      const rewards = await rewarded(answers, [steps]);
      const settings = { gamma: 1, lam: 1, whiten_advantages: true, group_baseline: false } as const;
      const advantage = solutionAdvantage(device, {
        algorithm,
        ...settings,
        loss_type: 'dapo',
        truncated: 'lowest',
      });
      const groups = await advantage.credit([{ item: 0, answers }], [rewards]);
      const credited = groups.flatMap((group) => group.answers);
      const first = credited.map(({ advantages }) => advantages[0] as number);
      expect(Math.min(...first)).toBe(first[2]);
      // Returns of late tokens are whitened together with those of early ones.
      if (algorithm === 'ppo' || algorithm === 'reinforce_pp') return;
      expect(Math.max(...(credited[2]?.advantages ?? []))).toBeLessThan(0);
    },
  );

  it('is no worse than the lowest outcome where prime compares the rewards of tokens by themselves', async () => {
    const long = [answer('a\na'), answer('b\na'), answer('b\na\na\na\na\na', { truncated: true })];
    const implicit = { byToken: async () => long.map(({ tokens }) => tokens.map(() => 0.5)) } as never;
    const credited = async (truncated: 'lowest' | 'keep') => {
      const settings = { algorithm: 'prime', placement: 'last', truncated } as const;
      const rewards = await rewarded(long, [rule], settings, implicit);
      const advantage = solutionAdvantage(device, {
        ...{ gamma: 1, lam: 1, whiten_advantages: false, group_baseline: false, loss_type: 'dapo' },
        ...settings,
      });
      const groups = await advantage.credit([{ item: 0, answers: long }], [rewards]);
      return groups.flatMap((group) => group.answers.map(({ advantages }) => [...advantages]));
    };
    // Both wrong ones have the lowest outcome already, and equal rewards of tokens leave nothing to compare.
    expect(await credited('lowest')).toEqual(await credited('keep'));
    expect((await credited('lowest')).map(([first]) => first)).toEqual([1, -0.5, -0.5]);
  });

  it('has no reward of its end where it goes on from the value there', async () => {
    const cut = answer('a\nb', { truncated: true });
    const [whole] = await rewarded([cut], [rule], { placement: 'last', truncated: 'bootstrap' });
    expect(whole).toMatchObject({ value: 0, byToken: [0, 0, 0] });
    const [keeps] = await rewarded([cut], [rule], { placement: 'last', truncated: 'keep' });
    expect(keeps).toMatchObject({ value: 1, byToken: [0, 0, 1] });
    const settings = { truncated: 'bootstrap', missing_eos_penalty: 0.25 } as const;
    const [penalised] = await rewarded([cut], [rule, steps], settings);
    expect(penalised?.byToken).toEqual([0.9, 0, 0.2 - 0.25]);
  });
});

describe('rewards of steps', () => {
  it('are on the last token of each; the end has a place only where something rewards the whole', async () => {
    const [own] = await rewarded(answers.slice(0, 1), [steps]);
    expect(own).toMatchObject({ byToken: [0.9, 0, 0.9, 0], places: [0, 2] });
    const [both] = await rewarded(answers.slice(0, 1), [steps, rule]);
    expect(both).toMatchObject({ byToken: [0.9, 0, 0.9, 1], places: [0, 2, 3] });
  });

  it('of a solution without steps are those of one that cannot be read', async () => {
    const [empty] = await rewarded([answer('')], [steps], { bound: 'clip' });
    expect(empty).toMatchObject({ value: -0.5, byToken: [-0.5], places: [0] });
    const bare = source('function', () => ({ value: -2, steps: [] }));
    expect(await rewarded([answer('')], [bare])).toMatchObject([{ value: -2 }]);
  });
});

it('the metrics say how many answers are right and how well each source tells them apart, whatever is rewarded', async () => {
  const texts = ['Answer: 7', 'Answer: 7', 'Answer: 8', 'Answer: 9'];
  // The second right one gets less than the first wrong one: three of four pairs are in the right order.
  const given = [4, 2, 3, 1].map((value) => ({ value }));
  const scored = { ...source('', () => ({ value: 0 })), reward: { name: 'steps', score: async () => given } };
  const reward = solutionRewards({
    sources: async () => [scored],
    problemOf: () => ({ problem: '', answer: '7' }),
    tokenizer,
    seed: 1,
    settings: {
      algorithm: 'ppo',
      placement: 'last',
      bound: 'none',
      bound_margin: 0.5,
      truncated: 'lowest',
      missing_eos_penalty: 0,
    },
  });
  const batch = { items: [0], iteration: 0, signal: new AbortController().signal };
  const answers = texts.map((text) => answer(text));
  const { metrics } = (await reward.reward([{ item: 0, answers }], batch)) ?? {};
  expect(metrics).toMatchObject({ right: 0.5, auc_steps: 0.75, reward_steps: 2.5, truncated: 0 });
});
