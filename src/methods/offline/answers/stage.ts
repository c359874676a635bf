/** Training on existing answers: one loop for every objective over sums of log-probs. */
import type { AnswerBatchConfig } from '../../../config/schema.js';
import { inMemory } from '../../../data/dataset.js';
import { type BatchedStageOptions, batchedStage } from '../../../train/batched-stage.js';
import type { TrainingStage } from '../../../train/stage.js';
import { type BatchContext, runBatch } from './batch.js';

export interface OfflineStageOptions
  extends BatchContext,
    Pick<BatchedStageOptions, 'name' | 'parameters' | 'validate' | 'end'> {
  readonly settings: AnswerBatchConfig;
  readonly seed: number;
  /** The metric of `validate` that selects the parameters to keep. Default: that of `heldOutMetrics`. */
  readonly best?: string;
}

/** Optimizer steps over the batches of the plan; `role` is without dropout, the stage adds it. */
export function offlineStage(options: OfflineStageOptions): TrainingStage {
  const { plan, parameters, seed } = options;
  return batchedStage({
    best: BEST,
    ...options,
    batches: {
      batches: inMemory(plan.batches),
      epochAt: plan.epochAt,
      // They are counted only where they are asked for.
      get tokens() {
        return plan.tokens;
      },
    },
    async gradients(_, index, report) {
      const { metrics, tokens } = await runBatch(options, index, {
        parameters,
        dropout: { seed, step: index },
        report,
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
