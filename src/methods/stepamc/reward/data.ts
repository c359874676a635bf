/** The reward network on the data of a run: its input, its stage, and the tokens the stage computes. */
import { indices, subset } from '../../../data/dataset.js';
import type { TrainingStage } from '../../../train/stage.js';
import type { StepAmcRun } from '../method.js';
import { type RewardUnit, rewardUnits } from './pairs.js';
import { type RewardSequence, rewardSequence } from './score.js';
import { comparePairs, rewardStage, rewardTokens } from './stage.js';

export interface RewardData {
  /** By item of the part. */
  readonly sequences: readonly RewardSequence[];
  /** Units of the chosen items. */
  units(items: readonly number[]): RewardUnit[];
  readonly all: readonly RewardUnit[];
}

export function rewardData(
  { config: { frn }, data: { sequences, records, tokenizer } }: StepAmcRun,
  part: 'train' | 'validation',
): RewardData {
  const own = sequences[part];
  const rewards = Array.from(own, (sequence) => rewardSequence(sequence, tokenizer, frn.pair_mode));
  const units = (items: readonly number[]) =>
    rewardUnits(
      subset(own, items),
      items.map((i) => rewards[i] as RewardSequence),
      items.map((i) => records[part].get(i).problem),
      frn.pair_mode,
    );
  return { sequences: rewards, units, all: units(indices(own)) };
}

/** Training on all pairs of the training part; validated by the share of held-out pairs in the right order. */
export function networkStage(open: StepAmcRun, train: RewardData): TrainingStage {
  const { config, roles } = open;
  const microBatchTokens = open.microBatchTokens('frn');
  const heldOut = rewardData(open, 'validation').all;
  const validate = async (stop: AbortSignal) => {
    if (stop.aborted) return undefined;
    return (await comparePairs(roles, heldOut, { settings: config.frn, microBatchTokens })).metrics;
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
