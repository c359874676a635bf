/** Advantages of solutions: from a critic, from their group, or from the batch. */
import { square } from '../../native/elementary.js';
import { type GroupBaseline, groupAdvantages } from '../../ops/advantage.js';
import type { Device } from '../../runtime/device.js';
import { assemble, estimate, whitened } from '../../train/policy/advantage.js';
import type { Advantage, AnswerReward } from '../../train/policy/records.js';
import { type AdvantageOf, algorithmOf } from './algorithms.js';
import type { SolutionAnswer, SolutionGroup } from './rollout.js';
import type { PpoSettings } from './settings.js';

export type AdvantageSettings = Pick<
  PpoSettings,
  'algorithm' | 'gamma' | 'lam' | 'whiten_advantages' | 'group_baseline' | 'loss_type' | 'truncated'
>;

type Rewards = readonly (readonly AnswerReward[])[];

/** Solutions that were cut off are not learned from where `truncated` is `mask`: their share is 0. */
export function solutionAdvantage(device: Device, settings: AdvantageSettings): Advantage<SolutionGroup> {
  const shareOf = ({ truncated }: SolutionAnswer) => (truncated && settings.truncated === 'mask' ? 0 : 1);
  return {
    async credit(groups, rewards) {
      const flat = groups.flatMap(({ answers }) => answers);
      const mask = Float32Array.from(flat.flatMap((answer) => answer.tokens.map(() => shareOf(answer))));
      const { advantage, whitens = false } = algorithmOf(settings);
      const { advantages, returns } = await ADVANTAGES[advantage](device, groups, rewards, settings);
      const final =
        settings.whiten_advantages && whitens ? await whitened(device, advantages, mask) : advantages;
      return assemble(groups, rewards, { advantages: final, returns, shareOf });
    },
  };
}

interface Flat {
  readonly advantages: Float32Array;
  /** Targets of the critic; zero without one. */
  readonly returns: Float32Array;
}

type Credit = (
  device: Device,
  groups: readonly SolutionGroup[],
  rewards: Rewards,
  settings: AdvantageSettings,
) => Promise<Flat>;

const ADVANTAGES: Readonly<Record<AdvantageOf, Credit>> = {
  async critic(device, groups, rewards, settings) {
    const ends = rewards.map((group) => group.map(algorithmOf(settings).byTurn ? turnEnds : tokenEnds));
    const { advantages, returns } = await estimate(
      device,
      groups.map((group, g) => ({
        ...group,
        answers: group.answers.map((one, i) => byAction(one, ends[g]?.[i] ?? [])),
      })),
      rewards.map((group, g) => group.map((one, i) => rewardByAction(one, ends[g]?.[i] ?? []))),
      {
        ...settings,
        lastValues: groups
          .flatMap(({ answers }) => answers)
          .map(({ truncated, endValue = 0 }) =>
            truncated && settings.truncated === 'bootstrap' ? endValue : 0,
          ),
      },
    );
    const lengths = ends.flat().flatMap((own) => own.map((end, k) => end - beginOf(own, k) + 1));
    const toTokens = (values: Float32Array) =>
      Float32Array.from(lengths.flatMap((length, i) => new Array<number>(length).fill(values[i] as number)));
    return { advantages: toTokens(advantages), returns: toTokens(returns) };
  },
  async returns(_device, _groups, rewards, { group_baseline, gamma }) {
    const above = group_baseline ? rewards.flatMap(aboveGroup) : rewards.flat().map(({ byToken }) => byToken);
    return withoutReturns(above.flatMap((byToken) => returnsToGo(byToken, gamma)));
  },
  async process(device, _groups, rewards, { gamma }) {
    const outcomes = rewards.map((group) => group.map(withoutProcess));
    const above = await ofGroups(device, outcomes, 'leave_one_out');
    const process = rewards.flatMap((group) => processAdvantages(group, gamma));
    return withoutReturns(
      process.flatMap((byToken, i) => byToken.map((advantage) => advantage + (above[i] as number))),
    );
  },
  leave_one_out: (device, _groups, rewards) => ofTotals(device, rewards, 'leave_one_out'),
  async group_apart(_device, _groups, rewards) {
    const advantages = apartAdvantages(rewards);
    return withoutReturns(
      rewards.flat().flatMap(({ byToken }, i) => byToken.map(() => advantages[i] as number)),
    );
  },
  async turns(_device, _groups, rewards, { gamma, loss_type }) {
    return withoutReturns(rewards.flatMap((group) => turnAdvantages(group, gamma, loss_type === 'dr_grpo')));
  },
  async group(device, _groups, rewards, settings) {
    const meanOnly = settings.loss_type === 'dr_grpo';
    const hasSteps = rewards.flat().some(({ places }) => places !== undefined);
    if (hasSteps && algorithmOf(settings).ratio === 'token')
      return withoutReturns(stepAdvantages(rewards, meanOnly));
    return ofTotals(device, rewards, meanOnly ? 'mean' : 'grpo');
  },
};

/** Every token is an action of its own. */
const tokenEnds = ({ byToken }: AnswerReward): number[] => byToken.map((_, t) => t);

/** The last tokens of turns: those with rewards, and the last one of the answer. */
const turnEnds = ({ byToken, places = [] }: AnswerReward): number[] =>
  [...new Set([...places, byToken.length - 1])].filter((end) => end >= 0);

const beginOf = (ends: readonly number[], k: number) => (k === 0 ? 0 : (ends[k - 1] as number) + 1);

/** An answer of actions: their number, and the critic's values of the states in which they begin. */
const byAction = ({ values, ...answer }: SolutionAnswer, ends: readonly number[]) => ({
  ...answer,
  tokens: ends,
  values: values.length === 0 ? values : ends.map((_, k) => values[beginOf(ends, k)] as number),
});

const rewardByAction = ({ value, byToken }: AnswerReward, ends: readonly number[]): AnswerReward => ({
  value,
  byToken: ends.map((end, k) => byToken.slice(beginOf(ends, k), end + 1).reduce((sum, one) => sum + one, 0)),
});

/** Every token of an answer has the advantage of the whole. */
async function ofTotals(device: Device, rewards: Rewards, baseline: GroupBaseline): Promise<Flat> {
  const totals = await ofGroups(device, rewards, baseline);
  return withoutReturns(rewards.flat().flatMap(({ byToken }, i) => byToken.map(() => totals[i] as number)));
}

function withoutReturns(advantages: readonly number[]): Flat {
  return { advantages: Float32Array.from(advantages), returns: new Float32Array(advantages.length) };
}

function total({ byToken }: AnswerReward): number {
  return byToken.reduce((sum, reward) => sum + reward, 0);
}

/**
 * Rewards by token less the mean of the group's solutions at the same place. The last rewards are compared with each
 * other, earlier ones by their number. Means beyond the places of a shorter solution are subtracted at its last one, so
 * that its total is above or below the mean total, as in REINFORCE++-baseline (arXiv 2501.03262), and equal solutions
 * have 0 everywhere. The means are of rewards before the KL penalty, which stays.
 */
function aboveGroup(group: readonly AnswerReward[]): number[][] {
  const placesOf = ({ byToken, places, process }: AnswerReward) =>
    process ? byToken.map((_, t) => t) : (places ?? [byToken.length - 1]);
  const before: number[] = [];
  let last = 0;
  for (const reward of group) {
    const places = placesOf(reward);
    const bare = reward.beforePenalty ?? reward.byToken;
    places.forEach((t, k) => {
      const share = (bare[t] as number) / group.length;
      if (k === places.length - 1) last += share;
      else before[k] = (before[k] ?? 0) + share;
    });
  }
  return group.map((reward) => {
    const above = [...reward.byToken];
    const places = placesOf(reward);
    const end = places.at(-1) as number;
    before.forEach((mean, k) => {
      const t = k < places.length - 1 ? (places[k] as number) : end;
      above[t] = (above[t] as number) - mean;
    });
    above[end] = (above[end] as number) - last;
    return above;
  });
}

/** Σ γ^(k − t) r_k over k ≥ t. */
function returnsToGo(rewards: readonly number[], gamma: number): number[] {
  const returns = [...rewards];
  for (let t = returns.length - 2; t >= 0; t--)
    returns[t] = (returns[t] as number) + gamma * (returns[t + 1] as number);
  return returns;
}

/** Advantages by answer, from the totals of its group. */
async function ofGroups(device: Device, rewards: Rewards, baseline: GroupBaseline): Promise<Float32Array> {
  const offsets = [0];
  for (const own of rewards) offsets.push((offsets.at(-1) as number) + own.length);
  const totals = Float32Array.from(rewards.flat(), total);
  if (totals.length === 0) return totals;
  const tensor = device.scope(() =>
    groupAdvantages(device.tensor(totals), device.tensor(Int32Array.from(offsets)), { baseline }),
  );
  const advantages = await tensor.readFloats();
  tensor.dispose();
  return advantages;
}

/**
 * GDPO (arXiv 2601.05242, as in TRL's `normalize_then_sum`), by answer: each source's rewards normalised within their group, summed by
 * weight, and the sums normalised over the batch.
 */
function apartAdvantages(rewards: Rewards): number[] {
  const sums = rewards.flatMap((group) => {
    const sources = group[0]?.parts ?? [];
    const bySource = sources.map((_, k) =>
      standard(group.map(({ parts = [] }) => parts[k]?.value as number)),
    );
    return group.map((_, a) =>
      sources.reduce((sum, { weight }, k) => sum + weight * (bySource[k]?.[a] as number), 0),
    );
  });
  return standard(sums);
}

/** The values minus their mean, divided by their standard deviation (of n − 1). */
function standard(values: readonly number[]): number[] {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + square(value - mean), 0);
  const deviation = values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0;
  return values.map((value) => (value - mean) / (deviation + EPSILON));
}

/** Added to the deviation, as `groupAdvantages` does. */
const EPSILON = 1e-4;

/**
 * Step rewards of a group normalised together; the advantage of a token is the sum over the steps that end at or after it
 * (DeepSeekMath's process supervision).
 */
function stepAdvantages(rewards: Rewards, meanOnly: boolean): number[] {
  return rewards.flatMap((group) => {
    const placed = group.map(({ byToken, places = [byToken.length - 1] }) =>
      places.map((t) => byToken[t] as number),
    );
    const all = placed.flat();
    const mean = all.reduce((sum, reward) => sum + reward, 0) / all.length;
    const squares = all.reduce((sum, reward) => sum + square(reward - mean), 0);
    const deviation = all.length > 1 ? Math.sqrt(squares / (all.length - 1)) : 0;
    const scale = meanOnly ? 1 : 1 / (deviation + EPSILON);
    return group.flatMap(({ byToken, places = [byToken.length - 1] }, i) => {
      // Other tokens have no reward: the configuration refuses a KL penalty and implicit rewards there.
      const normalised = byToken.map(() => 0);
      places.forEach((t, k) => {
        normalised[t] = ((placed[i]?.[k] as number) - mean) * scale;
      });
      return returnsToGo(normalised, 1);
    });
  });
}

/**
 * The return from each turn on, discounted by γ a turn, minus the mean and divided by the standard deviation (of n − 1)
 * of the same turn in the group's solutions. All tokens of a turn have its advantage; a turn that no other solution has
 * teaches nothing.
 */
function turnAdvantages(group: readonly AnswerReward[], gamma: number, meanOnly: boolean): number[] {
  const turns = group.map(({ byToken, places = [byToken.length - 1] }) => ({
    places,
    returns: returnsToGo(
      places.map((t) => byToken[t] as number),
      gamma,
    ),
  }));
  const most = Math.max(0, ...turns.map(({ places }) => places.length));
  const moments = Array.from({ length: most }, (_, k) => {
    const values = turns.flatMap(({ returns }) => (k < returns.length ? [returns[k] as number] : []));
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + square(value - mean), 0);
    const deviation = values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0;
    return { mean, scale: meanOnly ? 1 : 1 / (deviation + EPSILON) };
  });
  return group.flatMap(({ byToken }, i) => {
    const { places, returns } = turns[i] as (typeof turns)[number];
    let turn = 0;
    return byToken.map((_, t) => {
      while (turn < places.length - 1 && t > (places[turn] as number)) turn++;
      const { mean, scale } = moments[turn] as (typeof moments)[number];
      return ((returns[turn] as number) - mean) * scale;
    });
  });
}

function withoutProcess({ process, ...reward }: AnswerReward): AnswerReward {
  return process
    ? { ...reward, byToken: reward.byToken.map((all, t) => all - (process[t] as number)) }
    : reward;
}

/**
 * PRIME (arXiv 2502.01456, as in our source): each token's reward minus the mean reward per token of the other
 * solutions. The advantage of a token is the sum of these from it on.
 */
function processAdvantages(group: readonly AnswerReward[], gamma: number): number[][] {
  const means = group.map(
    ({ process = [] }) => process.reduce((sum, reward) => sum + reward, 0) / process.length,
  );
  const all = means.reduce((sum, mean) => sum + mean, 0);
  return group.map(({ process = [] }, i) => {
    const baseline = (all - (means[i] as number)) / (group.length - 1);
    return returnsToGo(
      process.map((reward) => reward - baseline),
      gamma,
    );
  });
}
