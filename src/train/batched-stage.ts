/** A stage that trains on a schedule of batches with one loss and one optimizer. */
import type { TrainableParameters } from '../autograd/parameters.js';
import { type BatchSchedule, type BatchSettings, scheduleBatches } from '../sequences/batching.js';
import { AdamW, type AdamWOptions, adamSettings } from './adamw.js';
import { learningRateAt, type ScheduleOptions } from './schedule.js';
import type { Metrics, OpenTraining, StepPart, TrainingSettings, TrainingStage } from './stage.js';
import { applyGradients } from './update.js';

export interface BatchGradients {
  /** Logged values; `loss` is minimised. */
  readonly metrics: Metrics & { readonly loss: number };
  /** Values for the progress line, after the loss. */
  readonly shown?: Metrics;
  readonly tokens: number;
}

/** Epochs and batches of a stage, by the keys of its section. */
type BatchKeys = { readonly num_train_epochs: number; readonly max_steps: number } & (
  | { readonly tokens_per_step: number }
  | { readonly batch_size: number }
);

export type StageItems = Pick<BatchSettings, 'seed' | 'tokensOf' | 'tokens' | 'shuffle'>;

/** Indices of the items whose size is not 0. */
export function withSize(sizes: Int32Array): Int32Array {
  const found = new Int32Array(sizes.length);
  let count = 0;
  for (let i = 0; i < sizes.length; i++) if (sizes[i] !== 0) found[count++] = i;
  return found.slice(0, count);
}

/** The batches of a stage, of a number of tokens or of items: until they have `tokens` in all, or as long as the epochs say. */
export function stageBatches(
  items: ArrayLike<number>,
  settings: BatchKeys,
  options: StageItems,
): BatchSchedule {
  const byItems = 'batch_size' in settings;
  return scheduleBatches(items, {
    ...options,
    // A budget of 0 is none.
    tokens: options.tokens || undefined,
    epochs: settings.num_train_epochs,
    maxBatches: settings.max_steps > 0 ? settings.max_steps : undefined,
    sizeOf: byItems ? () => 1 : options.tokensOf,
    batchSize: byItems ? settings.batch_size : settings.tokens_per_step,
  });
}

export interface BatchedStageOptions
  extends Pick<OpenTraining, 'validate' | 'end'>,
    Pick<TrainingStage, 'section'>,
    Pick<AdamWOptions, 'rateOf'> {
  readonly name: string;
  readonly batches: BatchSchedule;
  readonly settings: Omit<ScheduleOptions, 'totalSteps'> &
    Omit<TrainingSettings, 'best'> &
    Parameters<typeof adamSettings>[0] & {
      readonly load_best_model_at_end: boolean;
    } & ({ readonly tokens_per_step: number } | { readonly batch_size: number });
  readonly parameters: TrainableParameters;
  /** The metric of `validate` by which one evaluation is better than another: more is better. */
  readonly best?: string | undefined;
  readonly begin?: (() => Promise<void>) | undefined;
  /** Forward and backward of one batch of items; sets the parameters' gradients. */
  readonly gradients: (
    batch: readonly number[],
    index: number,
    report?: (part: StepPart) => void,
  ) => Promise<BatchGradients>;
}

export function batchedStage(options: BatchedStageOptions): TrainingStage {
  const { name, section, settings, parameters, rateOf, validate, end } = options;
  const { batches, epochAt } = options.batches;
  return {
    name,
    section,
    steps: batches.length,
    settings: { ...settings, best: options.best },
    batching:
      'batch_size' in settings
        ? { [`${name}.batch_size`]: settings.batch_size }
        : { [`${name}.tokens_per_step`]: settings.tokens_per_step },
    expectedTokens: () => options.batches.tokens,
    open() {
      const optimizer = new AdamW(parameters, { ...adamSettings(settings), rateOf });
      return {
        optimizers: { [name]: optimizer },
        trains: parameters,
        begin: async () => options.begin?.(),
        async step(index, _, report) {
          const batch = batches.get(index);
          const { metrics, shown, tokens } = await options.gradients(batch, index, report);
          const learningRate = learningRateAt(index, { ...settings, totalSteps: batches.length });
          const update = await applyGradients(optimizer, learningRate, { loss: metrics.loss });
          const progress = { loss: metrics.loss, ...shown };
          if (update.nonFinite !== undefined)
            return { metrics: {}, shown: progress, tokens, nonFinite: update.nonFinite };
          return {
            metrics: {
              epoch: epochAt(index + 1),
              ...metrics,
              grad_norm: update.gradNorm,
              learning_rate: learningRate,
            },
            shown: progress,
            tokens,
          };
        },
        validate,
        ...(end ? { end } : {}),
        dispose: () => optimizer.dispose(),
      };
    },
  };
}
