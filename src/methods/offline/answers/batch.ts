/** One batch of an offline objective, with and without a gradient. */
import type { TrainableParameters } from '../../../autograd/parameters.js';
import type { DropoutSource } from '../../../models/adapter.js';
import type { Decoder, Role } from '../../../models/decoder.js';
import { offlineSequence, sequenceLength } from '../../../scoring/implicit/items.js';
import { readSums, type SpanSums, scoreBatch } from '../../../scoring/implicit/sums.js';
import { groupBySize } from '../../../sequences/batching.js';
import { overGroups } from '../../../sequences/divided.js';
import { accumulate, balanceOf } from '../../../train/accumulate.js';
import type { StepPart } from '../../../train/stage.js';
import { Means } from './means.js';
import type { OfflineObjective, OfflineTerm } from './objective.js';
import type { OfflinePlan } from './plan.js';

export interface BatchContext {
  readonly decoder: Decoder;
  /** Role without dropout. */
  readonly role: Role;
  readonly objective: OfflineObjective;
  readonly plan: OfflinePlan;
  /**
   * References by item of the plan and its answers, then those of the pairs of each batch; empty without a reference.
   */
  readonly references: readonly (readonly SpanSums[])[];
  readonly microBatchTokens: number;
}

export interface BatchMeasures {
  readonly metrics: Readonly<Record<string, number>> & { readonly loss: number };
  readonly tokens: number;
}

/** Forward and, with `training`, backward of a batch: gradients are added into the parameters' buffers. */
export async function runBatch(
  { decoder, role, objective, plan, references, microBatchTokens }: BatchContext,
  index: number,
  training?: {
    readonly parameters: TrainableParameters;
    readonly dropout: DropoutSource;
    readonly report?: ((part: StepPart) => void) | undefined;
  },
): Promise<BatchMeasures> {
  const chosen = plan.batches[index] as readonly number[];
  const batch = chosen.map((i) => plan.items.get(i));
  const means = new Means();
  const pairs = plan.pairsOf(index);
  const measured = await overGroups(
    decoder.device,
    groupBySize(pairs, sequenceLength, microBatchTokens),
    (group) =>
      readSums(
        decoder,
        role,
        group.map((pair, i) => offlineSequence(pair, i)),
      ),
  );
  const policy = measured?.flat() ?? [];
  const reference = pairs.map((_, i) => references[plan.pairsAt(index) + i]?.[0] ?? []);
  const begun = objective.begin(batch, pairs.length > 0 ? { policy, reference } : undefined, means);
  const terms = await accumulate(
    chosen,
    {
      device: decoder.device,
      microBatchTokens,
      sizeOf: (i) => sequenceLength(plan.items.get(i)),
      normaliser: () => begun,
      trains: training && [training.parameters],
      report: training?.report,
      tell: (term: OfflineTerm, { loss, statistics }) => {
        const own = new Means();
        own.add('loss', loss);
        term.measure(statistics, own);
        return own.additions;
      },
    },
    (group, { terms }) => {
      const sequences = group.map((i) => offlineSequence(plan.items.get(i), i));
      const known = objective.needsReference ? group.flatMap((i) => references[i] ?? []) : undefined;
      const used = training && objective.dropout ? { ...role, dropout: training.dropout } : role;
      return terms(scoreBatch(decoder, used, sequences, known));
    },
  );
  for (const { told } of terms) means.addAll(told);
  begun.end?.(means);
  const metrics = means.result();
  const tokens = [...batch, ...pairs].reduce((sum, item) => sum + sequenceLength(item), 0);
  return { metrics: { ...metrics, loss: metrics.loss ?? 0, ...balanceOf(terms) }, tokens };
}
