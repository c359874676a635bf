/** The rewards of a rollout batch: sources mixed, placed on tokens, and what is done with solutions that were cut off. */

import { stepsOf } from '../../records/steps.js';
import { type MixedReward, mixedRewards, type WeightedSource } from '../../rewards/mixture.js';
import { boundedSteps, stepEnds } from '../../rewards/placement.js';
import type { RewardedSolution } from '../../rewards/reward.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { AnswerReward, RewardSource } from '../../train/policy/records.js';
import type { RunProblem } from '../../train/solutions/problems.js';
import type { RewardSection } from './config.js';
import type { SolutionAnswer, SolutionGroup } from './rollout.js';
import type { PpoSettings } from './settings.js';

export interface SolutionRewardOptions {
  readonly sources: readonly WeightedSource[];
  readonly problemOf: (item: number) => RunProblem;
  readonly tokenizer: Tokenizer;
  /** Of rewards that are shuffled. */
  readonly seed: number;
  readonly settings: Pick<RewardSection, 'placement' | 'bound' | 'bound_margin'> &
    Pick<PpoSettings, 'truncated' | 'missing_eos_penalty'>;
}

export function solutionRewards(options: SolutionRewardOptions): RewardSource<SolutionGroup> {
  const { sources, problemOf, settings, seed } = options;
  return {
    async reward(groups, { iteration, signal }) {
      const solutions = groups.flatMap(({ item, answers }) =>
        answers.map((answer) => rewarded(problemOf(item), answer)),
      );
      const bySteps = settings.placement === 'step';
      const mixed = await mixedRewards(sources, solutions, { bySteps, signal, iteration, seed });
      if (!mixed) return undefined;
      const lowest = mixed.reduce((least, own) => Math.min(least, totalOf(own)), Number.POSITIVE_INFINITY);
      let at = 0;
      const byGroup = groups.map(({ answers }) =>
        answers.map((answer) => {
          const i = at++;
          return placed(answer, mixed[i] as MixedReward, lowest, options);
        }),
      );
      return { byGroup, metrics: termMetrics(mixed, groups) };
    },
  };
}

function rewarded(problem: RunProblem, { text, tokens, truncated }: SolutionAnswer): RewardedSolution {
  return { problem, text, steps: stepsOf(text), tokens: tokens.length, truncated };
}

function totalOf({ value, steps = [] }: MixedReward): number {
  return steps.reduce((sum, step) => sum + step, value);
}

function placed(
  answer: SolutionAnswer,
  mixed: MixedReward,
  lowest: number,
  { settings, tokenizer }: SolutionRewardOptions,
): AnswerReward {
  const { truncated, tokens, text } = answer;
  const { terms } = mixed;
  const byToken = new Array<number>(tokens.length).fill(0);
  const last = tokens.length - 1;
  const penalty = truncated ? settings.missing_eos_penalty : 0;
  if (truncated && settings.truncated === 'lowest') {
    byToken[last] = lowest - penalty;
    return { value: lowest - penalty, byToken, terms, ...(mixed.steps ? { places: [last] } : {}) };
  }
  byToken[last] = mixed.value - penalty;
  const places = new Set<number>([last]);
  if (mixed.steps) {
    const ends = stepEnds(text, tokens, tokenizer);
    const bounded = boundedSteps(mixed.steps, settings.bound, settings.bound_margin);
    for (const [h, reward] of bounded.entries()) {
      const t = ends[h] ?? last;
      byToken[t] = (byToken[t] ?? 0) + reward;
      places.add(t);
    }
  }
  const value = byToken.reduce((sum, reward) => sum + reward, 0);
  const ascending = [...places].sort((a, b) => a - b);
  return { value, byToken, terms, ...(mixed.steps ? { places: ascending } : {}) };
}

/** The mean of every term, and how many solutions were cut off. */
function termMetrics(mixed: readonly MixedReward[], groups: readonly SolutionGroup[]) {
  const names = new Set(mixed.flatMap(({ terms }) => Object.keys(terms)));
  const mean = (of: (own: MixedReward) => number) =>
    mixed.length === 0 ? 0 : mixed.reduce((sum, own) => sum + of(own), 0) / mixed.length;
  const answers = groups.flatMap((group) => group.answers);
  return {
    ...Object.fromEntries(
      Array.from(names, (name) => [`reward_${name}`, mean(({ terms }) => terms[name] ?? 0)]),
    ),
    truncated:
      answers.length === 0 ? 0 : answers.filter(({ truncated }) => truncated).length / answers.length,
  };
}
