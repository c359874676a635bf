/** The sources of rewards that have a weight, opened. */
import { isOfProbabilities } from '../../eval/solving/aggregation.js';
import type { StepScorer } from '../../eval/step-scorer.js';
import { functionReward, loadRewardFunction } from '../../rewards/function.js';
import type { WeightedSource } from '../../rewards/mixture.js';
import { oracleReward } from '../../rewards/oracle.js';
import type { SolutionReward } from '../../rewards/reward.js';
import { answerReward, formatReward, lengthReward } from '../../rewards/rules.js';
import { outcomeReward, stepScoreReward } from '../../rewards/step-scores.js';
import { RunError } from '../../run/error.js';
import { type HeldMemory, heldMemory } from '../../train/held-memory.js';
import type { OpenScorers, RunContext } from '../../train/method.js';
import type { PpoRunConfig, RewardSection } from './config.js';

export interface OpenSource extends WeightedSource {
  /** Whitened by moments that the model before training has yet to give. */
  readonly byBase: boolean;
}

export interface OpenSources {
  readonly sources: readonly OpenSource[];
  /** Of the models that were loaded. */
  readonly held: HeldMemory;
  /** Frees the models that were loaded. */
  dispose(): void;
}

type Context = Pick<RunContext<PpoRunConfig>, 'config' | 'device' | 'openScorers'>;

/** @throws RunError for a model without such a scorer, DataError for a module without a function */
export async function rewardSources({
  config: { reward },
  device,
  openScorers,
}: Context): Promise<OpenSources> {
  const { held, mark } = heldMemory(device);
  // A model that serves as two sources is loaded once.
  const opened = new Map<string, OpenScorers>();
  const modelOf = async (role: 'PRM' | 'ORM', { model = '' }: RewardSection['outcome']) => {
    const known = opened.get(model);
    if (known) return known;
    const found = await openScorers(model);
    opened.set(model, found);
    mark(role);
    return found;
  };
  const scorerOf = (
    { scorers }: OpenScorers,
    { model, scorer }: RewardSection['outcome'],
    usual = '',
  ): StepScorer => {
    const names = Object.keys(scorers);
    const otherwise = names.includes(usual) ? usual : (names[0] as string);
    const named = scorers[scorer ?? otherwise];
    if (named) return named;
    throw new RunError(
      names.length === 0
        ? `${model} scores whole solutions, no steps; name it as reward.outcome.model`
        : `${model} has no scorer ${scorer}; its scorers are ${names.join(', ')}`,
    );
  };
  const makers: { readonly [Name in keyof RewardSection]?: () => Promise<SolutionReward> } = {
    rule: async () => answerReward(),
    format: async () => formatReward(reward.format.pattern),
    length: async () => lengthReward(reward.length),
    steps: async () => {
      const { aggregation, unread, until_wrong: untilWrong } = reward.steps;
      const found = await modelOf('PRM', reward.steps);
      if (found.outcomesAlone)
        throw new RunError(
          `${reward.steps.model} scores whole solutions, no steps; name it as reward.outcome.model`,
        );
      const scorer = scorerOf(found, reward.steps);
      if (scorer.scale !== 'probability' && isOfProbabilities(aggregation))
        throw new RunError(
          `${reward.steps.model} scores steps without bounds, and reward.steps.aggregation ${aggregation} multiplies probabilities: ` +
            'of two bad steps it would make a good solution; use min, mean, last, max or soft_min',
        );
      if (untilWrong && scorer.scale !== 'probability')
        throw new RunError(
          `${reward.steps.model} scores steps without bounds, so none is below one half; set reward.steps.until_wrong to false`,
        );
      return stepScoreReward(scorer, { name: 'steps', aggregation, unread, untilWrong });
    },
    outcome: async () => {
      const { unread } = reward.outcome;
      const found = await modelOf('ORM', reward.outcome);
      if (found.outcomes) return outcomeReward(found.outcomes, { name: 'outcome', unread });
      const options = { name: 'outcome', aggregation: 'last', unread, bySteps: false } as const;
      // Of a joint model, the output of outcomes.
      return stepScoreReward(scorerOf(found, reward.outcome, 'outcome'), options);
    },
    oracle: async () => oracleReward(reward.oracle.aggregation),
    function: async () =>
      functionReward(await loadRewardFunction(reward.function.module ?? ''), reward.function),
  };
  const dispose = () => {
    for (const scorers of opened.values()) scorers.dispose();
  };
  try {
    const sources: OpenSource[] = [];
    for (const [name, make] of Object.entries(makers)) {
      const { weight, scale, clip, whiten, shuffle } = reward[name as 'rule'];
      if (weight === 0) continue;
      const how = { whiten: whiten === true, byBase: whiten === 'base' };
      sources.push({ weight, scale, clip, shuffle, ...how, reward: await make() });
    }
    return { sources, held, dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}
