/** Training on answers that are there already: one loop for every objective over sums of log-probs. */
import type { TrainableParameters } from '../../../autograd/parameters.js';
import type { AnswerBatchConfig } from '../../../config/schema.js';
import { AdamW, adamSettings } from '../../../train/adamw.js';
import { batchedStage } from '../../../train/batched-stage.js';
import type { OpenTraining, TrainingStage } from '../../../train/stage.js';
import { type BatchContext, runBatch } from './batch.js';

export interface OfflineStageOptions extends BatchContext {
  readonly name: string;
  readonly parameters: TrainableParameters;
  readonly settings: AnswerBatchConfig;
  readonly seed: number;
  readonly validate?: OpenTraining['validate'];
  /** The metric of `validate` that selects the parameters to keep. Default: that of `heldOutMetrics`. */
  readonly best?: string;
}

/** Optimizer steps over the batches of the plan; `role` is without dropout, the stage adds it. */
export function offlineStage(options: OfflineStageOptions): TrainingStage {
  const { name, plan, settings, parameters, seed, validate, best = BEST } = options;
  return batchedStage({
    name,
    batches: plan,
    settings,
    parameters,
    optimizer: () => new AdamW(parameters, adamSettings(settings)),
    best,
    validate,
    async gradients(_, index) {
      const { metrics, tokens } = await runBatch(options, index, {
        parameters,
        dropout: { seed, step: index },
      });
      return { metrics, tokens, shown: shownOf(metrics) };
    },
  });
}

const BEST = 'negative_loss';

/** Loss and statistics of held-out items, all in one batch. */
export async function heldOutMetrics(context: BatchContext): Promise<Record<string, number>> {
  if (context.plan.items.length === 0) return {};
  const { loss, ...metrics } = (await runBatch(context, 0)).metrics;
  return { held_out_loss: loss, [BEST]: -loss, ...metrics };
}

/** On the progress line: margins, accuracies and the reference point. */
function shownOf(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => /accurac|margin|^z0$/.test(name)));
}
