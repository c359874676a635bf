/** The sources of rewards that have a weight, opened. */
import { refuseProduct } from '../../eval/solving/aggregation.js';
import { functionReward, loadRewardFunction } from '../../rewards/function.js';
import { admitScorer } from '../../rewards/gate.js';
import type { WeightedSource } from '../../rewards/mixture.js';
import type { SolutionReward } from '../../rewards/reward.js';
import { answerReward, environmentReward, formatReward, lengthReward } from '../../rewards/rules.js';
import { stepScoreReward } from '../../rewards/step-scores.js';
import { RunError } from '../../run/error.js';
import type { OpenScorers } from '../../scoring/kinds.js';
import { openScorer } from '../../scoring/open.js';
import { oracleScorer } from '../../scoring/oracle.js';
import { referenceScorer } from '../../scoring/reference.js';
import type { Scorer } from '../../scoring/scorer.js';
import type { RunContext } from '../../train/method.js';
import { type HeldMemory, heldMemory } from '../../train/roles/held-memory.js';
import type { PpoRunConfig, RewardSection } from './config.js';

export interface OpenSource extends WeightedSource {
  /** Whitened by moments that the model before training has yet to give. */
  readonly byBase: boolean;
}

export interface OpenSources {
  readonly sources: readonly OpenSource[];
  /** Memory of the loaded models. */
  readonly held: HeldMemory;
  /** Frees the models that were loaded. */
  dispose(): void;
}

type Context = Pick<RunContext<PpoRunConfig>, 'config' | 'device'>;

/** Rewards of steps are added by the number of the step, which is another step by another rule. */
function oneRule(sources: readonly OpenSource[]): void {
  const bySteps = sources.filter(({ reward: { name } }) => ['steps', 'oracle', 'reference'].includes(name));
  const rules = bySteps.map(({ reward: { segmentation = 'lines' } }) => segmentation);
  if (new Set(rules).size <= 1) return;
  const named = bySteps.map(({ reward: { name } }, i) => `reward.${name} (${rules[i]})`);
  throw new RunError(
    `${named.join(' and ')} take solutions into steps by different rules, and reward.placement "step" adds their rewards step by step; ` +
      'set the weight of one to 0, or reward.placement to "last"',
  );
}

/** @throws RunError for a model without such a scorer, DataError for a module without a function */
export async function rewardSources({ config: { reward, run }, device }: Context): Promise<OpenSources> {
  const { held, mark } = heldMemory(device);
  // A model that serves as two sources is loaded once.
  const shared = new Map<string, OpenScorers>();
  const open = async (
    role: 'PRM' | 'ORM',
    { model = '', scorer: part }: RewardSection['outcome'],
    unit: Scorer['unit'],
  ) => {
    const known = shared.has(model);
    if (!known) await admitScorer(model, run.accept_weak_reward);
    const found = await openScorer(device, model, { part, unit, shared });
    if (!known) mark(role);
    return found;
  };
  const makers: { readonly [Name in keyof RewardSection]?: () => Promise<SolutionReward> } = {
    environment: async () => environmentReward(),
    rule: async () => answerReward(),
    format: async () => formatReward(reward.format.pattern),
    length: async () => lengthReward(reward.length),
    steps: async () => {
      const { aggregation, unread, until_wrong: untilWrong } = reward.steps;
      const scorer = await open('PRM', reward.steps, 'step');
      refuseProduct(scorer, aggregation, 'reward.steps.aggregation');
      if (untilWrong && scorer.scale !== 'probability')
        throw new RunError(
          `${reward.steps.model} scores steps without bounds, so none is below one half; set reward.steps.until_wrong to false`,
        );
      return stepScoreReward(scorer, { name: 'steps', aggregation, unread, untilWrong });
    },
    outcome: async () => {
      // A joint model gives its output of outcomes.
      const scorer = await open('ORM', reward.outcome, 'outcome');
      const options = { name: 'outcome', aggregation: 'last', bySteps: false } as const;
      return stepScoreReward(scorer, { ...options, unread: reward.outcome.unread });
    },
    oracle: async () =>
      stepScoreReward(oracleScorer, { name: 'oracle', aggregation: reward.oracle.aggregation }),
    reference: async () =>
      stepScoreReward(referenceScorer, { name: 'reference', aggregation: reward.reference.aggregation }),
    function: async () =>
      functionReward(await loadRewardFunction(reward.function.module ?? ''), reward.function),
  };
  const dispose = () => {
    for (const scorers of shared.values()) scorers.dispose();
  };
  try {
    const sources: OpenSource[] = [];
    for (const [name, make] of Object.entries(makers)) {
      const { weight, scale, clip, whiten, shuffle } = reward[name as 'rule'];
      if (weight === 0) continue;
      const how = { whiten: whiten === true, byBase: whiten === 'base' };
      sources.push({ weight, scale, clip, shuffle, ...how, reward: await make() });
    }
    if (reward.placement === 'step') oneRule(sources);
    return { sources, held, dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}
