/** Training a reward model by cross-entropy of right and wrong, or of three classes. */

import type { TrainableParameters } from '../../autograd/parameters.js';
import { StepTrainError } from '../../native/errors.js';
import { binaryCrossEntropy } from '../../objectives/binary.js';
import { crossEntropy } from '../../objectives/likelihood.js';
import type { Tensor } from '../../runtime/tensor.js';
import { classIndex, type RewardItem, type ScoredRow } from '../../scoring/reward-model/items.js';
import { type RewardNetwork, rewardLogits } from '../../scoring/reward-model/network.js';
import { accumulate, balanceOf, totalLoss } from '../../train/accumulate.js';
import { type BatchGradients, batchedStage, stageBatches } from '../../train/batched-stage.js';
import type { StepPart, TrainingStage } from '../../train/stage.js';
import { type RewardRun, rewardValidation } from './reward-report.js';

/** @param weigh weight of a row in the loss before normalisation */
export function rewardTraining(
  open: RewardRun,
  network: RewardNetwork,
  weigh: (row: ScoredRow) => number,
): TrainingStage {
  const { config, roles } = open;
  const { reward_model: settings } = config;
  const { seed, max_tokens: tokens } = config.run;
  const items = open.data.items.train;
  const sizes = Array.from(items, ({ rows, tokens }) =>
    rows.some(({ target }) => target !== undefined) ? tokens : 0,
  );
  const usable = sizes.flatMap((size, i) => (size > 0 ? [i] : []));
  if (usable.length === 0)
    throw new StepTrainError(
      'E_DATA',
      'no training solution has anything to learn; check the labels, data.max_length and reward_model.solutions',
    );
  const microBatchTokens = open.microBatchTokens('reward');
  const learning = { network, parameters: roles.trained, weigh, microBatchTokens, seed };
  return batchedStage({
    name: 'reward',
    section: 'reward_model',
    batches: stageBatches(usable, settings, { seed, tokens, tokensOf: (i) => sizes[i] as number }),
    settings,
    parameters: roles.trained,
    best: 'auc',
    validate: (stop) => rewardValidation(open, network, stop),
    gradients: (batch, step, report) =>
      learnRewards(
        { ...learning, report },
        batch.map((i) => items.get(i)),
        step,
      ),
  });
}

export interface RewardLearning {
  readonly network: RewardNetwork;
  readonly parameters: TrainableParameters;
  readonly weigh: (row: ScoredRow) => number;
  readonly microBatchTokens: number;
  readonly seed: number;
  readonly report?: ((part: StepPart) => void) | undefined;
}

/** Forward and backward of one optimizer batch; gradients are added into the parameters' buffers. */
export async function learnRewards(
  { network, parameters, weigh, microBatchTokens, seed, report }: RewardLearning,
  batch: readonly RewardItem[],
  step: number,
): Promise<BatchGradients> {
  const learned = batch.map((item) => ({
    ...item,
    rows: item.rows.filter(({ target }) => target !== undefined),
  }));
  const all = learned.flatMap(({ rows }) => rows);
  const terms = await accumulate(
    learned,
    {
      device: network.decoder.device,
      microBatchTokens,
      sizeOf: ({ tokens }) => tokens,
      normaliser: () => all.reduce((sum, row) => sum + weigh(row), 0),
      trains: [parameters],
      scope: 'reward model',
      report,
    },
    (group, total) => {
      const rows = group.flatMap((item) => item.rows);
      if (rows.length === 0) return [];
      const weights = rows.map((row) => weigh(row) / total);
      return [{ loss: rewardLoss(rewardLogits(network, group, { seed, step }), rows, weights) }];
    },
  );
  return {
    metrics: { loss: totalLoss(terms), targets: all.length, ...balanceOf(terms) },
    tokens: batch.reduce((sum, { tokens }) => sum + tokens, 0),
  };
}

/** The loss of scored rows, a scalar. */
export function rewardLoss(
  logits: ReturnType<typeof rewardLogits>,
  rows: readonly Pick<ScoredRow, 'label' | 'neutral' | 'target'>[],
  weights: readonly number[],
): Tensor {
  if (!('classes' in logits))
    return binaryCrossEntropy({ ...logits, labels: rows.map(({ target }) => target as number), weights });
  const { device } = logits.classes;
  const targets = device.tensor(Int32Array.from(rows, classIndex));
  return crossEntropy(logits.classes, targets, device.tensor(Float32Array.from(weights))).loss;
}
