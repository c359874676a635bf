// What is logged of a rollout batch.
import { expect, it } from 'vitest';
import { rolloutMetrics, SamplerDrift, samplerDifference } from '../../src/train/policy/metrics.js';

const answer = (oldLogprobs: number[], samplerLogprobs: number[], server?: number) => ({
  ...{ tokens: [], refLogprobs: [], values: [], oldLogprobs, samplerLogprobs },
  ...(server === undefined ? {} : { server }),
});

it('tells how far sampler and training forward differ, over all tokens and those of each server', () => {
  const groups = [
    { item: 0, answers: [answer([-1, -2], [-1, -2.5], 1), answer([-1], [-3], 3)] },
    { item: 1, answers: [answer([-4], [-3.75], 1), answer([], [-1], 2)] },
  ];
  expect(samplerDifference(groups)).toEqual({
    sampler_difference: 2.75 / 4,
    sampler_difference_server_1: 0.75 / 3,
    sampler_difference_server_3: 2,
  });
  expect(samplerDifference([{ item: 0, answers: [answer([-1], [-1.5])] }])).toEqual({
    sampler_difference: 0.5,
  });
  expect(samplerDifference([{ item: 0, answers: [answer([], [-1], 1)] }])).toEqual({});
});

it('tells how old the oldest answer is, where answers are drawn ahead', () => {
  const credit = { reward: 1, rewards: [], advantages: [], returns: [], share: 1 };
  const of = (...ages: (number | undefined)[]) =>
    rolloutMetrics([
      {
        item: 0,
        answers: ages.map((age) => ({
          ...{ ...answer([], []), ...credit },
          ...(age === undefined ? {} : { staleness: age }),
        })),
      },
    ]).staleness;
  expect(of(0, 2, 1)).toBe(2);
  expect(of(0)).toBe(0);
  expect(of(undefined)).toBe(undefined);
});

it('counts rewards by share, or all alike where answers are sampled', () => {
  const credit = { rewards: [], advantages: [], returns: [] };
  const of = (reward: number, share: number) => ({ ...answer([], []), ...credit, reward, share });
  const groups = [{ item: 0, answers: [of(1, 0.75), of(-1, 0.25), of(3, 0)] }];
  expect(rolloutMetrics(groups)).toMatchObject({ reward_mean: 0.5, reward_min: -1, reward_max: 3 });
  expect(rolloutMetrics(groups, () => 1)).toMatchObject({ reward_mean: 1, reward_max: 3 });
});

it('warns once of a server that drifts away from the policy, also after a resume', () => {
  const drift = new SamplerDrift();
  // Bits of its own, and then rounding that grows as the policy does.
  expect(drift.observe({ sampler_difference: 0.002, sampler_difference_server_2: 0 })).toBeUndefined();
  expect(drift.observe({ sampler_difference: 0.019, sampler_difference_server_2: 0.009 })).toBeUndefined();
  const resumed = new SamplerDrift(drift.state());
  const next = { sampler_difference: 0.019, sampler_difference_server_2: 0.011, loss: 3 };
  expect(resumed.observe(next)).toMatch(
    /server 2 differ by 0\.0110 nats .* differed by 0\.00 at first.*sampler_difference_server_2/,
  );
  expect(resumed.observe(next)).toBeUndefined();
  expect(new SamplerDrift(drift.state()).observe({ sampler_difference: 0.021 })).toMatch(
    /its samples differ/,
  );
});
