/** Learning the tokens of the loss mask: supervised fine-tuning and pre-training. */

import type { OptimizationConfig } from '../config/schema.js';
import type { Dataset } from '../data/dataset.js';
import type { Decoder, Role } from '../models/decoder.js';
import { StepTrainError } from '../native/errors.js';
import { nll } from '../objectives/nll.js';
import { scoreRows } from '../sequences/forward.js';
import { learnedSizes, type TrainingSequence } from '../sequences/sequence.js';
import { accumulate, balanceOf, totalLoss } from './accumulate.js';
import {
  type BatchedStageOptions,
  type BatchGradients,
  batchedStage,
  type StageItems,
  stageBatches,
  withSize,
} from './batched-stage.js';
import type { StepPart, TrainingStage } from './stage.js';

export interface SupervisedOptions
  extends Pick<BatchedStageOptions, 'name' | 'parameters' | 'best' | 'validate'>,
    Pick<StageItems, 'seed' | 'tokens' | 'shuffle'> {
  readonly decoder: Decoder;
  /** Role without dropout; the stage adds it. */
  readonly role: Role;
  readonly sequences: Dataset<TrainingSequence>;
  /** Their {@link learnedSizes}, where they are known without making the sequences. */
  readonly sizes?: Int32Array | undefined;
  readonly optimization: OptimizationConfig;
  /** Tokens in memory at once. */
  readonly microBatchTokens: number;
}

export function supervisedStage(options: SupervisedOptions): TrainingStage {
  const { sequences, optimization: settings, seed } = options;
  const sizes = options.sizes ?? learnedSizes(sequences);
  const usable = withSize(sizes);
  if (usable.length === 0) {
    throw new StepTrainError(
      'E_DATA',
      'no training sequence has a token to learn; check the labels, data.max_length and the prompt',
    );
  }
  const { tokens, shuffle } = options;
  const tokensOf = (i: number) => sizes[i] as number;
  const batches = stageBatches(usable, settings, { seed, tokensOf, tokens, shuffle });
  return batchedStage({
    ...options,
    batches,
    settings,
    gradients: (batch, step, report) =>
      learn(
        { ...options, report },
        batch.map((i) => sequences.get(i)),
        { seed, step },
      ),
  });
}

/** Forward and backward of one optimizer batch; gradients are added into the parameters' buffers. */
async function learn(
  {
    decoder,
    role,
    parameters,
    microBatchTokens,
    report,
  }: SupervisedOptions & {
    readonly report?: ((part: StepPart) => void) | undefined;
  },
  batch: readonly TrainingSequence[],
  dropout: { readonly seed: number; readonly step: number },
): Promise<BatchGradients> {
  const { device } = decoder;
  const all = batch.flatMap(({ targets }) => targets);
  const terms = await accumulate(
    batch,
    {
      device,
      microBatchTokens,
      sizeOf: ({ ids }) => ids.length,
      normaliser: () => all.reduce((sum, { weight }) => sum + weight, 0),
      trains: [parameters],
      report,
    },
    (group, total) => {
      const items = group.map((sequence) => ({ sequence, rows: sequence.targets }));
      const { logprobs } = scoreRows(decoder, { ...role, dropout }, items);
      const weights = group.flatMap(({ targets }) => targets.map(({ weight }) => weight / total));
      return [{ loss: nll(logprobs, device.tensor(Float32Array.from(weights))) }];
    },
  );
  return {
    metrics: { loss: totalLoss(terms), targets: all.length, ...balanceOf(terms) },
    tokens: batch.reduce((sum, { ids }) => sum + ids.length, 0),
  };
}
