/** A stage that goes through the data in planned batches: one loss, one optimizer. */
import type { TrainableParameters } from '../autograd/parameters.js';
import type { BatchPlan } from '../sequences/batching.js';
import type { AdamW } from './adamw.js';
import { learningRateAt, type ScheduleOptions } from './schedule.js';
import type { Stage, StagePlan, StageSchedule } from './stage.js';
import { applyGradients } from './update.js';

export interface BatchGradients {
  /** Logged; `loss` is what is minimised. */
  readonly figures: Readonly<Record<string, number>> & { readonly loss: number };
  /** For the progress line, beside the loss. */
  readonly shown?: Readonly<Record<string, number>>;
  readonly tokens: number;
}

export interface BatchedStageOptions {
  readonly name: string;
  readonly batches: BatchPlan;
  readonly settings: Omit<ScheduleOptions, 'totalSteps'> &
    Omit<StageSchedule, 'best'> & {
      readonly load_best_model_at_end: boolean;
      readonly tokens_per_step: number;
    };
  readonly microBatchTokens: number;
  readonly parameters: TrainableParameters;
  readonly optimizer: () => AdamW;
  /** The figure of `validate` whose best parameters are kept, if `load_best_model_at_end` says so. */
  readonly best?: string | undefined;
  readonly begin?: (() => Promise<void>) | undefined;
  readonly validate?: Stage['validate'];
  /** Forward and backward of one batch of items; sets the parameters' gradients. */
  readonly gradients: (batch: readonly number[], index: number) => Promise<BatchGradients>;
}

export function batchedStage(options: BatchedStageOptions): StagePlan {
  const { name, settings, microBatchTokens } = options;
  const { batches, epochAt } = options.batches;
  return {
    name,
    steps: batches.length,
    schedule: { ...settings, best: settings.load_best_model_at_end ? options.best : undefined },
    plan: {
      [`${name}.tokens_per_step`]: settings.tokens_per_step,
      [`${name}.micro_batch_tokens`]: microBatchTokens,
    },
    open() {
      const optimizer = options.optimizer();
      return {
        optimizers: { [name]: optimizer },
        trains: options.parameters,
        begin: async () => options.begin?.(),
        async step(index) {
          const { figures, shown, tokens } = await options.gradients(batches[index] as number[], index);
          const learningRate = learningRateAt(index, { ...settings, totalSteps: batches.length });
          const update = await applyGradients(optimizer, learningRate, { loss: figures.loss });
          const progress = { loss: figures.loss, ...shown };
          if (update.nonFinite !== undefined)
            return { figures: {}, shown: progress, tokens, nonFinite: update.nonFinite };
          return {
            figures: {
              epoch: epochAt(index + 1),
              ...figures,
              grad_norm: update.gradNorm,
              learning_rate: learningRate,
            },
            shown: progress,
            tokens,
          };
        },
        validate: options.validate,
        dispose: () => optimizer.dispose(),
      };
    },
  };
}
