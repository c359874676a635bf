/** The rewards of a rollout batch: sources mixed, placed on tokens, and what is done with solutions that were cut off. */

import { rocAuc } from '../../eval/statistics/metrics.js';
import type { Segmentation } from '../../records/segment.js';
import { stepsOf } from '../../records/steps.js';
import { readableStep } from '../../records/turns.js';
import {
  type MixedReward,
  mixedRewards,
  type RewardPart,
  type WeightedSource,
} from '../../rewards/mixture.js';
import { boundedSteps, stepEnds } from '../../rewards/placement.js';
import type { RewardedSolution } from '../../rewards/reward.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AnswerReward, RewardSource } from '../../train/policy/records.js';
import { gradeSolution, type RunProblem } from '../../train/solutions/problems.js';
import { isSolved, type SolutionTurns } from '../../train/solutions/solution-source.js';
import type { Metrics } from '../../train/stage.js';
import { algorithms } from './algorithms.js';
import type { RewardSection } from './config.js';
import type { ImplicitRewards } from './implicit.js';
import { IMPLICIT } from './reward-sections.js';
import type { SolutionAnswer, SolutionGroup } from './rollout.js';
import type { PpoSettings } from './settings.js';

export interface SolutionRewardOptions {
  /** Opens the sources, with the first rollout batch; undefined if the signal stopped it. */
  readonly sources: (signal: AbortSignal) => Promise<readonly WeightedSource[] | undefined>;
  readonly problemOf: (item: number) => RunProblem;
  readonly tokenizer: Tokenizer;
  /** An additional source with rewards of tokens. */
  readonly implicit?: ImplicitRewards | undefined;
  /** Seed of shuffled rewards. */
  readonly seed: number;
  readonly settings: Pick<RewardSection, 'placement' | 'bound' | 'bound_margin'> &
    Pick<PpoSettings, 'algorithm' | 'truncated' | 'missing_eos_penalty'> & {
      /** Turns that the environment gave no reward have no place among the rewards of steps, as nothing else judges them. */
      readonly paysSomeTurns?: boolean;
    };
}

export function solutionRewards(options: SolutionRewardOptions): RewardSource<SolutionGroup> {
  const { problemOf, settings, seed, implicit } = options;
  return {
    ...(implicit
      ? {
          optimizers: implicit.optimizers,
          learn: (batch) => implicit.learn(batch),
          state: () => implicit.state(),
          restore: (state: unknown) => implicit.restore(state),
        }
      : {}),
    async reward(groups, { iteration, signal }) {
      const sources = await options.sources(signal);
      if (!sources) return undefined;
      const solutions = groups.flatMap(({ item, answers }) =>
        answers.map(({ text, tokens, truncated, turns }) =>
          rewardedSolution(problemOf(item), { text, tokens: tokens.length, truncated, turns }),
        ),
      );
      const bySteps = settings.placement === 'step';
      const rule = sources.find(({ reward }) => reward.segmentation !== undefined)?.reward.segmentation;
      const mixed = await mixedRewards(sources, solutions, { bySteps, signal, iteration, seed });
      const byToken = await implicit?.byToken(groups, signal);
      if (!mixed || (implicit && !byToken)) return undefined;
      let at = 0;
      const asGiven = groups.map(({ answers }) =>
        answers.map((answer) => {
          const own = placed(answer, mixed[at] as MixedReward, { ...options, rule });
          const process = byToken?.[at];
          at++;
          return withTokens(own, process);
        }),
      );
      const lowest = asGiven
        .flat()
        .reduce((least, own) => Math.min(least, comparedWhole(own, settings)), Number.POSITIVE_INFINITY);
      const leastParts = lowestParts(asGiven.flat());
      const leastOutcome = Math.min(
        ...asGiven.flat().map(({ outcome = Number.POSITIVE_INFINITY }) => outcome),
      );
      const byGroup = groups.map(({ answers }, g) =>
        answers.map((answer, a) => {
          const own = (asGiven[g] as AnswerReward[])[a] as AnswerReward;
          if (!answer.truncated) return own;
          const outcome = settings.truncated === 'lowest' ? leastOutcome : own.outcome;
          return {
            ...ofCutOff(own, lowest, settings),
            ...(own.outcome === undefined ? {} : { outcome }),
            parts: cutOffParts(own, leastParts, settings),
          };
        }),
      );
      const terms = asGiven.flat().map((own) => own.terms ?? {});
      return { byGroup, metrics: termMetrics(terms, groups, problemOf) };
    },
  };
}

/** A solution, or an episode with its turns as steps, as sources of rewards read it. */
export function rewardedSolution(
  problem: RunProblem,
  {
    turns,
    ...written
  }: Pick<RewardedSolution, 'text' | 'tokens' | 'truncated'> & {
    readonly turns?: Pick<SolutionTurns, 'conversation' | 'rewards'> | undefined;
  },
): RewardedSolution {
  const { text } = written;
  const own = { problem, ...written, opened: problem.opened };
  if (!turns) return { ...own, steps: stepsOf(text) };
  const { conversation, rewards } = turns;
  return { ...own, steps: conversation.steps.map(readableStep), turns: conversation, turnRewards: rewards };
}

function placed(
  { truncated, tokens, text, turns }: SolutionAnswer,
  mixed: MixedReward,
  { settings, tokenizer, rule }: SolutionRewardOptions & { readonly rule: Segmentation | undefined },
): AnswerReward {
  const last = tokens.length - 1;
  const byToken = new Array<number>(tokens.length).fill(0);
  const places = new Set<number>();
  const place = (t: number, reward: number) => {
    byToken[t] = (byToken[t] as number) + reward;
    places.add(t);
  };
  // A solution that goes on from the critic's value has not reached the rewarded end.
  const goesOn = truncated && settings.truncated === 'bootstrap';
  if (mixed.value !== undefined && !goesOn) place(last, mixed.value);
  if (mixed.steps) {
    const ends = turns?.ends ?? stepEnds(text, tokens, tokenizer, rule);
    const bounded = boundedSteps(mixed.steps, settings.bound, settings.bound_margin);
    const isPaid = (h: number) => !turns || !settings.paysSomeTurns || turns.rewards[h] !== null;
    for (const [h, reward] of bounded.entries()) if (isPaid(h)) place(ends[h] ?? last, reward);
    if (places.size === 0) place(last, 0);
  }
  return {
    value: sum(byToken),
    byToken,
    terms: mixed.terms,
    ...(mixed.outcome === undefined ? {} : { outcome: mixed.outcome }),
    ...(mixed.steps ? { places: [...places].sort((a, b) => a - b) } : { parts: mixed.parts }),
  };
}

/** The rewards of an implicit model are kept apart too, for the advantage that compares them so. */
function withTokens(own: AnswerReward, process: readonly number[] | undefined): AnswerReward {
  if (!process) return own;
  const all = sum(process);
  const { outcome: _, ...others } = own;
  return {
    ...others,
    value: own.value + all,
    byToken: own.byToken.map((reward, t) => reward + (process[t] as number)),
    process,
    terms: { ...own.terms, [IMPLICIT]: all },
  };
}

/** The compared total of a solution that was cut off; `prime` compares the rewards of tokens by themselves. */
function comparedWhole(
  { value, process }: AnswerReward,
  { algorithm }: Pick<PpoSettings, 'algorithm'>,
): number {
  return algorithms[algorithm].advantage === 'process' ? value - sum(process ?? []) : value;
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** The rewards of steps stay: the last token makes up for the difference, so that the whole is the lowest in every algorithm. */
function ofCutOff(
  own: AnswerReward,
  lowest: number,
  settings: SolutionRewardOptions['settings'],
): AnswerReward {
  const { value, byToken, places, terms, process } = own;
  const { truncated, missing_eos_penalty: penalty } = settings;
  const less = penalty + (truncated === 'lowest' ? comparedWhole(own, settings) - lowest : 0);
  const last = byToken.length - 1;
  return {
    value: value - less,
    byToken: byToken.map((reward, t) => (t === last ? reward - less : reward)),
    ...(terms ? { terms } : {}),
    ...(process ? { process } : {}),
    ...(places ? { places: places.at(-1) === last ? places : [...places, last] } : {}),
  };
}

/** The lowest reward of the rollout batch, by source. */
function lowestParts(all: readonly AnswerReward[]): number[] {
  return (all[0]?.parts ?? []).map((_, k) =>
    all.reduce(
      (least, { parts = [] }) => Math.min(least, parts[k]?.value ?? least),
      Number.POSITIVE_INFINITY,
    ),
  );
}

/** Sources that are compared apart: each gives the lowest that it gave to any solution. */
function cutOffParts(
  { parts = [] }: AnswerReward,
  lowest: readonly number[],
  { truncated }: Pick<PpoSettings, 'truncated'>,
): RewardPart[] {
  return parts.map((part, k) => (truncated === 'lowest' ? { ...part, value: lowest[k] as number } : part));
}

/**
 * The mean of every term and, whatever is rewarded, the share of right answers (`right`); `auc_NAME`: how often a source gives a
 * right solution more than a wrong one, which says what it is worth on what the policy writes by now. And how many were cut off.
 */
function termMetrics(
  mixed: readonly NonNullable<AnswerReward['terms']>[],
  groups: readonly SolutionGroup[],
  problemOf: SolutionRewardOptions['problemOf'],
): Metrics {
  const names = [...new Set(mixed.flatMap((terms) => Object.keys(terms)))];
  const mean = (values: readonly number[]) => (values.length === 0 ? 0 : sum(values) / values.length);
  const answers = groups.flatMap(({ item, answers: own }) => own.map((answer) => ({ ...answer, item })));
  const right = answers.map(({ item, text, truncated, turns }) =>
    Number(isSolved(turns) ?? gradeSolution(problemOf(item), text, !truncated).correct),
  );
  const said = (name: string) => mixed.map((terms) => terms[name] ?? 0);
  const aucs = names.flatMap((name) => {
    const auc = rocAuc(said(name), right);
    return auc === undefined ? [] : [[`auc_${name}`, auc] as const];
  });
  return {
    ...Object.fromEntries(names.map((name) => [`reward_${name}`, mean(said(name))])),
    right: mean(right),
    ...Object.fromEntries(aucs),
    truncated: mean(answers.map(({ truncated }) => Number(truncated))),
  };
}
