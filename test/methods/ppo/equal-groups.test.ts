import { expect, it } from 'vitest';
import { equalGroupsWatch } from '../../../src/methods/ppo/equal-groups.js';

const group = (...rewards: number[]) => ({ answers: rewards.map((reward) => ({ reward })) }) as never;
const equal = [group(1, 1, 1), group(1, 1, 1)];
const grpo = { algorithm: 'grpo', group_baseline: false } as const;

it('says once, after three batches in a row, that equal rewards teach nothing', () => {
  const watch = equalGroupsWatch(grpo, 10);
  expect([watch(equal), watch(equal), watch([group(1, 0), group(1, 1)]), watch(equal), watch(equal)]).toEqual(
    Array(5).fill(undefined),
  );
  expect(watch(equal)).toMatch(
    /^in 3 rollout batches in a row all solutions of each problem have the same reward \(1\), so that advantages are 0/,
  );
  for (let i = 0; i < 4; i++) expect(watch(equal)).toBeUndefined();
});

it('says so sooner where there are fewer batches, and names no reward where problems differ', () => {
  expect(equalGroupsWatch(grpo, 1)([group(0, 0), group(1, 1)])).toMatch(
    /^in the rollout batch all solutions of each problem have the same reward, so/,
  );
});

it('names the limit of tokens where it cuts most of them off', () => {
  const ofCut = (...cut: boolean[]) => [
    { answers: cut.map((truncated) => ({ reward: 0, truncated })) } as never,
  ];
  expect(equalGroupsWatch(grpo, 1)(ofCut(true, true, false))).toMatch(
    /learns nothing: raise rollout\.max_new_tokens, at which 66 % of the last ones are cut off, or take harder/,
  );
  expect(equalGroupsWatch(grpo, 1)(ofCut(true, false, false))).toMatch(/learns nothing: take harder/);
});

it('is for advantages within groups alone', () => {
  for (const settings of [
    { algorithm: 'ppo', group_baseline: false },
    { algorithm: 'reinforce_pp', group_baseline: false },
    { algorithm: 'prime', group_baseline: false },
  ] as const)
    expect(equalGroupsWatch(settings, 1)(equal)).toBeUndefined();
  const baseline = { algorithm: 'reinforce_pp', group_baseline: true } as const;
  expect(equalGroupsWatch(baseline, 1)(equal)).toContain('learns nothing');
});
