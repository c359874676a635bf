import { readFileSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { type CreditSettings, verdictAdvantage } from '../../../src/methods/stepamc/advantage.js';
import {
  placeReward,
  type RewardSettings,
  type RunningScores,
  verdictReward,
  withScores,
} from '../../../src/methods/stepamc/rewards.js';
import type { Question, VerdictAnswer } from '../../../src/methods/stepamc/rollout.js';
import type { VerdictScores } from '../../../src/scoring/reward-network/scores.js';
import { withKlPenalty } from '../../../src/train/policy/kl.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

const { ppo } = JSON.parse(readFileSync(new URL('../../golden/vectors.json', import.meta.url), 'utf8')) as {
  ppo: {
    values: number[];
    advantages: number[];
    returns: number[];
    rewards: number[];
    whitened_bessel: number[];
  };
};

const REWARD: RewardSettings = {
  mode: 'label',
  center: 'pair_mean',
  reward_clip: 10,
  invalid_reward: -1,
  wrong_reward: 0,
};
const NONE: RunningScores = { count: 0, mean: 0, squares: 0 };
const CREDIT: CreditSettings = {
  gamma: 1,
  lam: 0.95,
  whiten_advantages: false,
  rollout: 'sample',
};

const answer = (values: readonly number[], more: Partial<VerdictAnswer> = {}): VerdictAnswer => ({
  tokens: values.map((_, i) => i),
  verdict: 1,
  oldLogprobs: values.map(() => -0.5),
  refLogprobs: values.map(() => -0.7),
  samplerLogprobs: [],
  values,
  ...more,
});
const question = (...answers: VerdictAnswer[]): Question => ({
  item: 0,
  place: 0,
  step: 0,
  label: 1,
  answers,
});

describe('the reward of a verdict', () => {
  const scores = { positive: 3, negative: -1 };
  test('is centred on the pair, so that the rewards of both verdicts add up to 0', () => {
    const [right, wrong] = ([1, 0] as const).map((verdict) =>
      verdictReward(verdict, 1, scores, REWARD, NONE),
    );
    expect([right, wrong]).toEqual([2, -2]);
  });
  test('is normalised by all scores so far', () => {
    const running = withScores(NONE, [1, 2, 3, 4]);
    expect(running.mean).toBe(2.5);
    const reward = verdictReward(1, 1, scores, { ...REWARD, center: 'running' }, running);
    expect(reward).toBeCloseTo(0.5 / Math.sqrt(5 / 3), 12);
  });
  test('of a network that scores steps is right above the mean of all steps so far, wherever its zero is', () => {
    const settings = { ...REWARD, mode: 'step', center: 'running' } as const;
    const rewards = (zero: number) => {
      const running = withScores(
        NONE,
        [3, 5].map((score) => score + zero),
      );
      return [3, 5].map((score) => {
        const scores = { positive: score + zero, negative: -(score + zero) };
        return ([1, 0] as const).map((verdict) => verdictReward(verdict, 1, scores, settings, running));
      });
    };
    const unit = 1 / Math.SQRT2;
    for (const zero of [0, -4, 100]) {
      const [wrong, right] = rewards(zero);
      for (const [found, expected] of [
        [wrong, [-unit, unit]],
        [right, [unit, -unit]],
      ] as const)
        found?.forEach((reward, i) => void expect(reward).toBeCloseTo(expected[i] as number, 10));
    }
  });
  test('is clipped; is invalid_reward for neither word; follows the label without a network', () => {
    expect(verdictReward(1, 1, { positive: 90, negative: 0 }, REWARD, NONE)).toBe(10);
    expect(verdictReward(undefined, 1, { positive: 0.5, negative: 0 }, REWARD, NONE)).toBe(-1);
    expect(([1, 0] as const).map((verdict) => verdictReward(verdict, 0, undefined, REWARD, NONE))).toEqual([
      0, 1,
    ]);
  });
});

describe('the reward of an answer that is neither word', () => {
  const unreadable = (scores: VerdictScores | undefined, settings: Partial<RewardSettings> = {}) =>
    verdictReward(undefined, 1, scores, { ...REWARD, ...settings }, NONE);
  const scores = { positive: 4, negative: -4 };
  test('is never above that of the worse word', () => {
    expect(unreadable(scores, { center: 'none' })).toBe(-4);
    expect(unreadable(scores)).toBe(-4);
    expect(unreadable({ positive: -30, negative: 30 })).toBe(-10);
    expect(unreadable(scores, { mode: 'step', center: 'running' })).toBe(-4);
    expect(unreadable(undefined, { wrong_reward: -3 })).toBe(-3);
  });
  test('is the configured one where that is less', () => {
    expect(unreadable(scores, { invalid_reward: -20 })).toBe(-20);
    expect(unreadable(undefined)).toBe(-1);
  });
});

/** The reward of an answer at its last token. */
const atEnd = (value: number, { tokens }: VerdictAnswer) => ({
  value,
  byToken: placeReward(value, tokens.length, 'last'),
});

describe('rewards of tokens', () => {
  test('are placed at the last token, or at every token', () => {
    expect(placeReward(2, 3, 'last')).toEqual([0, 0, 2]);
    expect(placeReward(2, 3, 'every')).toEqual([2, 2, 2]);
  });
  test('include the KL penalty of each token if it is part of the reward', () => {
    const given = answer([0, 0]);
    expect(withKlPenalty(given, atEnd(1, given), 0.1)).toEqual({
      value: 1,
      byToken: [expect.closeTo(-0.02, 12), expect.closeTo(0.98, 12)],
      beforePenalty: [0, 1],
    });
  });
});

describe('credit', () => {
  // Golden rewards come from penalties: reward 0.82 at the end minus 0.1 times lp − ref of 0.1, 0, 0.2, 0.2.
  const golden = answer(ppo.values, {
    oldLogprobs: [-0.4, -0.5, -0.3, -0.3],
    refLogprobs: [-0.5, -0.5, -0.5, -0.5],
  });
  const penalised = withKlPenalty(golden, atEnd(0.82, golden), 0.1);

  test('is GAE over the tokens of each answer separately', async () => {
    const other = answer([0.3]);
    const [, found] = await verdictAdvantage(device, CREDIT).credit(
      [question(other), question(golden)],
      [[atEnd(5, other)], [penalised]],
    );
    const [own] = found!.answers;
    for (const [i, expected] of ppo.rewards.entries()) expect(own!.rewards[i]).toBeCloseTo(expected, 9);
    for (const [i, expected] of ppo.advantages.entries()) expect(own!.advantages[i]).toBeCloseTo(expected, 6);
    for (const [i, expected] of ppo.returns.entries()) expect(own!.returns[i]).toBeCloseTo(expected, 6);
  });

  test('whitens over the whole batch and does not change the returns', async () => {
    const settings = { ...CREDIT, whiten_advantages: true };
    const [found] = await verdictAdvantage(device, settings).credit([question(golden)], [[penalised]]);
    const [own] = found!.answers;
    for (const [i, expected] of ppo.whitened_bessel.entries())
      expect(own!.advantages[i]).toBeCloseTo(expected, 5);
    for (const [i, expected] of ppo.returns.entries()) expect(own!.returns[i]).toBeCloseTo(expected, 6);
  });

  test('of enumerated answers is their distance from the expectation, weighted by probability', async () => {
    const [p, n] = [0.6, 0.2];
    const both = question(
      answer([0], { oldLogprobs: [Math.log(p)] }),
      answer([0], { oldLogprobs: [Math.log(n)], verdict: 0 }),
    );
    const rewards = both.answers.map((given, a) => atEnd(a === 0 ? 1 : -1, given));
    const settings = { ...CREDIT, rollout: 'enumerate' } as const;
    const [found] = await verdictAdvantage(device, settings).credit([both], [rewards]);
    const expected = (p * 1 + n * -1) / (p + n);
    expect(found!.answers.map(({ share }) => share)).toEqual([expect.closeTo(p, 12), expect.closeTo(n, 12)]);
    expect(found!.answers.map(({ advantages }) => advantages[0])).toEqual([
      expect.closeTo(1 - expected, 6),
      expect.closeTo(-1 - expected, 6),
    ]);
  });

  test('of enumerated answers have mean 0 and deviation 1 under the policy, once whitened', async () => {
    // Right with probability 0.9 in one question and 0.5 in the other; word lengths differ.
    const ask = (p: number, reward: number) => {
      const right = answer([0, 0], { oldLogprobs: [Math.log(p) / 2, Math.log(p) / 2] });
      const wrong = answer([0], { oldLogprobs: [Math.log(1 - p)], verdict: 0 });
      return { asked: question(right, wrong), rewards: [atEnd(reward, right), atEnd(-reward, wrong)] };
    };
    const both = [ask(0.9, 1), ask(0.5, 3)];
    const settings = { ...CREDIT, rollout: 'enumerate', whiten_advantages: true } as const;
    const found = await verdictAdvantage(device, settings).credit(
      both.map(({ asked }) => asked),
      both.map(({ rewards }) => rewards),
    );
    const tokens = found.flatMap(({ answers }) =>
      answers.flatMap(({ share, advantages }) => advantages.map((value) => ({ share, value }))),
    );
    const mass = tokens.reduce((sum, { share }) => sum + share, 0);
    const square = tokens.reduce((sum, { share, value }) => sum + share * value ** 2, 0) / mass;
    expect(square).toBeCloseTo(1, 5);
    for (const { answers } of found) {
      const mean = answers.reduce((sum, { share, advantages }) => sum + share * advantages[0]!, 0);
      expect(mean).toBeCloseTo(0, 6);
    }
    // Distance of the reward from its expectation: 2r(1 − p), which is 0.2 and 3.
    expect(found[1]!.answers[0]!.advantages[0]! / found[0]!.answers[0]!.advantages[0]!).toBeCloseTo(15, 4);
  });
});
