// Advantages of solutions, against golden numbers and by hand.
import { readFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { type AdvantageSettings, solutionAdvantage } from '../../../src/methods/ppo/advantage.js';
import type { SolutionAnswer, SolutionGroup } from '../../../src/methods/ppo/rollout.js';
import { KlControl, klEstimate, withKlPenalty } from '../../../src/train/policy/kl.js';
import type { AnswerReward } from '../../../src/train/policy/records.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

const {
  group,
  ppo,
  kl_estimators: estimators,
} = JSON.parse(readFileSync(new URL('../../golden/vectors.json', import.meta.url), 'utf8')) as Record<
  string,
  Record<string, number[]>
>;

const SETTINGS: AdvantageSettings = {
  algorithm: 'ppo',
  gamma: 1,
  lam: 0.95,
  whiten_advantages: false,
  group_baseline: false,
  loss_type: 'dapo',
  truncated: 'lowest',
};

function answer(tokens: number, more: Partial<SolutionAnswer> = {}): SolutionAnswer {
  const each = (value: number) => new Array<number>(tokens).fill(value);
  const zero = { tokens: each(1), oldLogprobs: each(-1), refLogprobs: each(-1), samplerLogprobs: each(-1) };
  return { ...zero, values: [], text: '', truncated: false, ...more };
}

const last = (reward: number, tokens = 1): AnswerReward => {
  const byToken = new Array<number>(tokens).fill(0);
  byToken[tokens - 1] = reward;
  return { value: reward, byToken };
};

async function credit(
  groups: SolutionGroup[],
  rewards: AnswerReward[][],
  settings: Partial<AdvantageSettings>,
) {
  const credited = await solutionAdvantage(device, { ...SETTINGS, ...settings }).credit(groups, rewards);
  return credited.flatMap(({ answers }) => answers);
}

const close = (found: readonly number[], expected: readonly number[]) => {
  expect(found.length).toBe(expected.length);
  found.forEach((value, i) => {
    expect(value).toBeCloseTo(expected[i] as number, 5);
  });
};

describe('of an implicit reward model', () => {
  it('compares outcomes and rewards of tokens apart, each with the other solutions', async () => {
    const groups = [{ item: 0, answers: [answer(2), answer(3), answer(1)] }];
    const rewards = [
      { value: 1.3, byToken: [0.1, 1.2], process: [0.1, 0.2] },
      { value: 0.6, byToken: [0.3, 0.1, 0.2], process: [0.3, 0.1, 0.2] },
      { value: 0.6, byToken: [0.6], process: [-0.4] },
    ];
    // Outcomes 1, 0, 1 against the mean of the other two; mean rewards of a token 0.15, 0.2 and −0.4.
    const found = await credit(groups, [rewards], { algorithm: 'prime' });
    close(found[0]!.advantages, [0.5 + (0.3 - 2 * -0.1), 0.5 + (0.2 - -0.1)]);
    const baseline = (0.15 - 0.4) / 2;
    close(found[1]!.advantages, [
      -1 + (0.6 - 3 * baseline),
      -1 + (0.3 - 2 * baseline),
      -1 + (0.2 - baseline),
    ]);
    close(found[2]!.advantages, [0.5 + (-0.4 - 0.175)]);
    const whitened = await credit(groups, [rewards], { algorithm: 'prime', whiten_advantages: true });
    const all = whitened.flatMap(({ advantages }) => advantages);
    expect(all.reduce((sum, value) => sum + value, 0)).toBeCloseTo(0, 4);
  });
});

describe('of a group', () => {
  const answers = group!.rewards!.map(() => answer(2));
  const groups = [{ item: 0, answers }];
  const rewards = [group!.rewards!.map((reward) => last(reward, 2))];
  it.each([
    ['grpo', {}],
    ['dr_grpo', { algorithm: 'grpo', loss_type: 'dr_grpo' }],
    ['rloo', { algorithm: 'rloo' }],
    ['grpo', { algorithm: 'gspo' }],
  ] as const)('%s has the golden numbers, on every token', async (name, settings) => {
    const found = await credit(groups, rewards, { algorithm: 'grpo', ...settings });
    close(
      found.flatMap(({ advantages }) => advantages),
      group![name]!.flatMap((value) => [value, value]),
    );
  });

  it('of equal solutions is 0', async () => {
    const found = await credit(
      [{ item: 0, answers: answers.slice(0, 3) }],
      [[last(1, 2), last(1, 2), last(1, 2)]],
      {
        algorithm: 'grpo',
      },
    );
    close(
      found.flatMap(({ advantages }) => advantages),
      [0, 0, 0, 0, 0, 0],
    );
  });

  it('with rewards of steps normalises them together and sums those that end at or after a token', async () => {
    const steps = (byToken: number[], places: number[]): AnswerReward => ({ value: 0, byToken, places });
    const found = await credit(
      [{ item: 0, answers: [answer(3), answer(2)] }],
      [[steps([1, 0, 0], [0, 2]), steps([0, 1], [1])]],
      { algorithm: 'grpo' },
    );
    const deviation = Math.sqrt(((1 - 2 / 3) ** 2 * 2 + (2 / 3) ** 2) / 2) + 1e-4;
    const [right, wrong] = [1 / 3 / deviation, -2 / 3 / deviation];
    close(found[0]!.advantages, [right + wrong, wrong, wrong]);
    close(found[1]!.advantages, [right, right]);
  });
});

describe('from a critic', () => {
  const own = answer(ppo!.values!.length, { values: ppo!.values! });
  const reward: AnswerReward = { value: 1, byToken: ppo!.rewards! };
  it('are the golden ones, whitened or not', async () => {
    const [plain] = await credit([{ item: 0, answers: [own] }], [[reward]], {});
    close(plain!.advantages, ppo!.advantages!);
    close(plain!.returns, ppo!.returns!);
    const [white] = await credit([{ item: 0, answers: [own] }], [[reward]], { whiten_advantages: true });
    close(white!.advantages, ppo!.whitened_bessel!);
  });

  it('go on from the value of the end of what was cut off, where that is asked for', async () => {
    const cut = answer(2, { values: [0.5, 0.25], truncated: true, endValue: 0.75 });
    const of = (truncated: AdvantageSettings['truncated']) =>
      credit([{ item: 0, answers: [cut] }], [[last(0, 2)]], { truncated, lam: 1 });
    close((await of('bootstrap'))[0]!.returns, [0.75, 0.75]);
    close((await of('keep'))[0]!.returns, [0, 0]);
  });

  it('leave out what was cut off where it is masked, also of mean and deviation', async () => {
    const answers = [
      answer(1, { values: [0] }),
      answer(1, { values: [0] }),
      answer(1, { values: [0], truncated: true }),
    ];
    const found = await credit([{ item: 0, answers }], [[last(1), last(-1), last(50)]], {
      truncated: 'mask',
      whiten_advantages: true,
    });
    expect(found.map(({ share }) => share)).toEqual([1, 1, 0]);
    close(
      found.map(({ advantages }) => advantages[0]!),
      [Math.SQRT1_2, -Math.SQRT1_2, 0],
    );
  });
});

describe('from returns', () => {
  it('are discounted, those of the reward less the mean of its group where that is asked for', async () => {
    const groups = [{ item: 0, answers: [answer(3), answer(1)] }];
    const of = (settings: Partial<AdvantageSettings>) =>
      credit(groups, [[last(1, 3), last(0)]], { algorithm: 'reinforce_pp', gamma: 0.5, ...settings });
    close(
      (await of({})).flatMap(({ advantages }) => advantages),
      [0.25, 0.5, 1, 0],
    );
    close(
      (await of({ group_baseline: true })).flatMap(({ advantages }) => advantages),
      [0.125, 0.25, 0.5, -0.5],
    );
  });
});

/**
 * REINFORCE++-baseline (arXiv 2501.03262): of each outcome the mean of its group is subtracted, and what is left is
 * normalised over all tokens of the batch. The numbers were worked out in Python from these two lines. With verl's estimator of the same
 * name they agree as they are (n − 1 in the deviation); OpenRLHF divides by n, which makes all of them larger by √(n / (n − 1)).
 */
it('REINFORCE++ with a baseline is what its paper defines', async () => {
  const rewards = [
    [1, 0, 0, 1],
    [0.5, 1, 0, 0.25],
  ];
  const lengths = [
    [3, 1, 2, 4],
    [2, 4, 1, 3],
  ];
  const groups = lengths.map((own, item) => ({ item, answers: own.map((tokens) => answer(tokens)) }));
  const given = rewards.map((own, g) => own.map((reward, i) => last(reward, lengths[g]?.[i])));
  const found = await credit(groups, given, {
    algorithm: 'reinforce_pp',
    group_baseline: true,
    whiten_advantages: true,
  });
  const golden = [0.771703, -1.557966, -1.557966, 0.771703, -0.247527, 0.917307, -1.412362, -0.829945];
  found.forEach(({ advantages }, i) => {
    close(
      advantages,
      advantages.map(() => golden[i]!),
    );
  });
});

describe('above the group, by place', () => {
  const steps = (rewards: readonly number[]): AnswerReward => ({
    value: rewards.reduce((sum, reward) => sum + reward, 0),
    byToken: rewards.flatMap((reward) => [0, reward]),
    places: rewards.map((_, k) => 2 * k + 1),
  });
  const of = (rewards: AnswerReward[], settings: Partial<AdvantageSettings> = {}) =>
    credit([{ item: 0, answers: rewards.map(({ byToken }) => answer(byToken.length)) }], [rewards], {
      algorithm: 'reinforce_pp',
      group_baseline: true,
      ...settings,
    });

  it.each([
    ['of steps', [1, 1]],
    ['of steps that differ', [0.2, 0.9]],
    ['of a solution', [1]],
  ])('equal solutions are at 0, with rewards %s', async (_, rewards) => {
    const four = () => [1, 2, 3, 4].map(() => steps(rewards));
    for (const settings of [{}, { gamma: 0.5 }, { whiten_advantages: true }])
      for (const { advantages } of await of(four(), settings))
        close(
          advantages,
          advantages.map(() => 0),
        );
    const process = { value: 3, byToken: [2, 1], process: [2, 1] };
    for (const { advantages } of await of([process, process])) close(advantages, [0, 0]);
  });

  it('the whole of a solution is above or below the mean of the wholes, and a step that of its number', async () => {
    const [first, second] = await of([steps([0, 1]), steps([1, 0])]);
    close(first!.advantages, [0, 0, 0.5, 0.5]);
    close(second!.advantages, [0, 0, -0.5, -0.5]);
    const uneven = [[1], [1, 1], [0.5, 0, 1]];
    const mean = 4.5 / 3;
    const found = await of(uneven.map(steps));
    uneven.forEach((rewards, i) => {
      const whole = rewards.reduce((sum, reward) => sum + reward, 0);
      expect(found[i]!.advantages[0]).toBeCloseTo(whole - mean, 5);
    });
    close(found[1]!.advantages, [0.5, 0.5, 0, 0]);
  });

  it('the mean is of rewards before the KL penalty, which stays', async () => {
    const penalised = [last(1, 2), last(0, 2)].map((own) =>
      withKlPenalty({ oldLogprobs: [-1, -1], refLogprobs: [-2, -2] }, own, 0.1),
    );
    const [right, wrong] = await of(penalised);
    close(right!.advantages, [0.3, 0.4]);
    close(wrong!.advantages, [-0.7, -0.6]);
  });
});

describe('the KL penalty', () => {
  it('has the golden estimates and is subtracted by token', () => {
    estimators!.logp!.forEach((logp, i) => {
      for (const name of ['k1', 'k2', 'k3'] as const)
        expect(klEstimate(logp - estimators!.ref_logp![i]!, name)).toBeCloseTo(estimators![name]![i]!, 8);
    });
    const own = { oldLogprobs: [-1, -2], refLogprobs: [-1.2, -1.5] };
    const { byToken } = withKlPenalty(own, last(1, 2), 0.1, 'k2');
    close(byToken, [-0.002, 1 - 0.0125]);
  });

  it('adapts its coefficient towards the target, bounded, and keeps it in the checkpoint', () => {
    const settings = { kl_in: 'reward', kl_coef: 0.1, kl_target: 1, kl_horizon: 10 } as const;
    const control = new KlControl(settings);
    const far = { item: 0, answers: [answer(2, { oldLogprobs: [0, 0], refLogprobs: [-3, -3] })] };
    expect(control.observe([far])).toEqual({ kl_answer: 6, kl_coef: 0.1 });
    expect(control.inReward).toBeCloseTo(0.1 * (1 + 0.2 / 10), 8);
    const near = { item: 0, answers: [answer(1), answer(1)] };
    control.observe([near]);
    expect(control.inReward).toBeCloseTo(0.102 * (1 - (0.2 * 2) / 10), 8);
    const many = { item: 0, answers: Array.from({ length: 1000 }, () => answer(1)) };
    const before = control.inReward;
    control.observe([many]);
    expect(control.inReward).toBe(before / 2);
    const other = new KlControl(settings);
    other.restore(JSON.parse(JSON.stringify(control.state())));
    expect([other.inReward, other.inLoss]).toEqual([control.inReward, 0]);
  });
});
