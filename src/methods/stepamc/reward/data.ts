/** The reward network's input: the sequences and pairs of a part of the data. */
import { indices, subset } from '../../../data/dataset.js';
import type { Part } from '../../../data/split.js';
import { type RewardSequence, rewardSequence } from '../../../scoring/reward-network/scores.js';
import type { StepAmcRun } from '../run.js';
import { type RewardUnit, rewardUnits } from './pairs.js';

export interface RewardData {
  /** By item of the part. */
  readonly sequences: readonly RewardSequence[];
  /** Units of the chosen items. */
  units(items: readonly number[]): RewardUnit[];
  readonly all: readonly RewardUnit[];
}

export function rewardData(
  { config: { frn }, data: { sequences, records, tokenizer } }: StepAmcRun,
  part: Part,
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
