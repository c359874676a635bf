/** The reward network's input: the sequences and pairs of a part of the data. */
import { indices, subset } from '../../../data/dataset.js';
import type { Part } from '../../../data/split.js';
import { type RewardSequence, rewardSequence } from '../../../scoring/reward-network/scores.js';
import { usualReasonLength } from '../reason-length.js';
import type { StepAmcRun } from '../run.js';
import { type RewardUnit, rewardUnits } from './pairs.js';
import { readsReasons } from './reasons.js';

export interface RewardData {
  /** The unit of each item of the part. */
  readonly sequences: readonly RewardSequence[];
  /** Units of the chosen items. */
  units(items: readonly number[]): RewardUnit[];
  readonly all: readonly RewardUnit[];
}

/**
 * The data of the reward network. Where answers have reasons, units of training count those that will be written: one
 * before each of the two verdicts of a pair.
 */
export function rewardData(open: StepAmcRun, part: Part): RewardData {
  const {
    config: { reward_network: network },
    data: { sequences, records, tokenizer },
  } = open;
  const own = sequences[part];
  const reason = part === 'train' && readsReasons(open) ? usualReasonLength(own) : 0;
  const rewards = Array.from(own, (sequence) => rewardSequence(sequence, tokenizer, network.pair_mode));
  const units = (items: readonly number[]) =>
    rewardUnits(
      subset(own, items),
      items.map((i) => rewards[i] as RewardSequence),
      items.map((i) => records[part].get(i).problem),
      network.pair_mode,
    ).map((unit) => ({ ...unit, tokens: unit.tokens + 2 * reason * unit.pairs.length }));
  return { sequences: rewards, units, all: units(indices(own)) };
}
