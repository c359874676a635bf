/** The reward network in a run: its stage, and the tokens the stage computes. */
import { shortMetrics } from '../../../train/evaluation.js';
import type { TrainingStage } from '../../../train/stage.js';
import type { StepAmcRun } from '../run.js';
import { type RewardData, rewardData } from './data.js';
import { judgeByNetwork } from './judge.js';
import { comparePairs, rewardStage, rewardTokens } from './stage.js';

/** Training on all pairs of the training part; validated by the held-out pairs in the right order, and as a judge. */
export function networkStage(open: StepAmcRun, train: RewardData): TrainingStage {
  const { config, roles } = open;
  const microBatchTokens = open.microBatchTokens('frn');
  const heldOut = rewardData(open, 'validation').all;
  const validate = async (stop: AbortSignal) => {
    const network = await judgeByNetwork(open, 'validation', stop);
    if (!network) return undefined;
    const { metrics } = await comparePairs(roles, heldOut, { settings: config.frn, microBatchTokens });
    return { ...metrics, ...shortMetrics(network.report.metrics) };
  };
  return rewardStage({
    roles,
    units: train.all,
    settings: config.frn,
    microBatchTokens,
    seed: config.run.seed,
    validate: heldOut.some(({ pairs }) => pairs.length > 0) ? validate : undefined,
  });
}

/** Tokens of all forward and backward passes of that stage: the budget of the baselines. */
export function networkTokens({ config: { frn, run } }: StepAmcRun, train: RewardData): number {
  return rewardTokens({ units: train.all, settings: frn, seed: run.seed });
}
