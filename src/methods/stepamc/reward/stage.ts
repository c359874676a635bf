/** Training the reward network on all pairs of the training part. */
import { StepTrainError } from '../../../native/errors.js';
import type { StepReasons } from '../../../scoring/reward-network/scores.js';
import type { BatchSchedule } from '../../../sequences/batching.js';
import { batchedStage, stageBatches } from '../../../train/batched-stage.js';
import type { TrainingStage } from '../../../train/stage.js';
import { shortMetrics } from '../../../train/verdicts/evaluation.js';
import type { StepAmcRun } from '../run.js';
import { comparePairs, rewardRate } from './compare.js';
import { type RewardData, rewardData } from './data.js';
import { judgeByNetwork } from './judge.js';
import type { RewardUnit } from './pairs.js';
import { readsReasons, reasonedUnits, reasonsOfWarmUp } from './reasons.js';

/** Role index in the reward network's dropout masks. */
const DROPOUT_ROLE = 1;

/** Validated by the held-out pairs in the right order, and as a judge. */
export function networkStage(open: StepAmcRun, train: RewardData): TrainingStage {
  const { config, roles } = open;
  const { reward_network: settings, run } = config;
  const how = { settings, microBatchTokens: open.microBatchTokens('reward_network') };
  const reads = readsReasons(open);
  const heldOut = rewardData(open, 'validation').all;
  const validate = async (stop: AbortSignal) => {
    const network = await judgeByNetwork(open, 'validation', stop);
    if (!network) return undefined;
    const { metrics } = await comparePairs(roles, network.units, how);
    return { ...metrics, ...shortMetrics(network.report.metrics) };
  };
  /** The units of a batch, with reasons that the warm-up draws anew. */
  const unitsOf = async (batch: readonly number[], iteration: number) => {
    if (!reads) return batch.map((i) => train.all[i] as RewardUnit);
    const sequences = batch.map((item) => open.data.sequences.train.get(item));
    const { temperature } = config.verdict_ppo;
    const reasons = (await reasonsOfWarmUp(open, sequences, { temperature, iteration })) as StepReasons[];
    return reasonedUnits(open, sequences, reasons);
  };
  return batchedStage({
    name: 'reward_network',
    batches: schedulePairs(open, train),
    settings,
    parameters: roles.rewardParameters,
    rateOf: rewardRate,
    best: 'pair_accuracy',
    begin: async () => {
      if (settings.init === 'sft') await roles.startRewardFromPolicy();
      if (reads) await roles.keepReference();
    },
    validate: heldOut.some(({ pairs }) => pairs.length > 0) ? validate : undefined,
    async gradients(batch, step, report) {
      const dropout = { seed: run.seed, step, role: DROPOUT_ROLE };
      const units = await unitsOf(batch, step);
      const { metrics, tokens } = await comparePairs(roles, units, { ...how, train: { dropout, report } });
      return { metrics, shown: { accuracy: metrics.pair_accuracy }, tokens };
    },
  });
}

function schedulePairs(
  { config: { reward_network: network, run } }: StepAmcRun,
  { all: units }: RewardData,
): BatchSchedule {
  const usable = units.flatMap(({ pairs }, i) => (pairs.length > 0 ? [i] : []));
  if (usable.length === 0) {
    throw new StepTrainError(
      'E_DATA',
      network.pair_mode === 'step'
        ? 'reward_network.pair_mode "step" finds no problem with a right and a wrong step in the training data; use "label"'
        : 'no training step has a label, so the reward network has nothing to compare',
    );
  }
  return stageBatches(usable, network, { seed: run.seed, tokensOf: (i) => (units[i] as RewardUnit).tokens });
}
