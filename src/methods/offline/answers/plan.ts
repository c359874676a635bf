/**
 * The answers and the mismatched pairs of each batch, known before training, so that the reference scores each once.
 */
import type { AnswerBatchConfig } from '../../../config/schema.js';
import { type Dataset, dataset } from '../../../data/dataset.js';
import { mismatched, type OfflineItem, sequenceLength } from '../../../scoring/implicit/items.js';
import { type StageItems, stageBatches } from '../../../train/batched-stage.js';
import { mismatch, mixProblems } from './pairing.js';

export interface OfflinePlan {
  readonly items: Dataset<OfflineItem>;
  readonly batches: readonly (readonly number[])[];
  /** Tokens of all batches, mismatched pairs included. */
  readonly tokens: number;
  epochAt(batch: number): number;
  /** The mismatched pairs of a batch, one for each of its items; none where they have no use. */
  pairsOf(batch: number): readonly OfflineItem[];
  /** Index of a batch's first pair among the references, after those of all items. */
  pairsAt(batch: number): number;
  /** Number of references. */
  readonly references: number;
}

export interface OfflinePlanOptions {
  /** Whether each batch needs mismatched pairs. */
  readonly pairs: boolean;
  /** Tokens of a mismatched pair; beyond them its answer is cut off. */
  readonly maxLength: number;
}

/** @throws StepTrainError where mismatched pairs are needed and cannot be formed */
export function trainingPlan(
  items: Dataset<OfflineItem>,
  {
    settings,
    seed,
    tokens,
    ...options
  }: OfflinePlanOptions & Pick<StageItems, 'seed' | 'tokens'> & { readonly settings: AnswerBatchConfig },
): OfflinePlan {
  const all = Array.from({ length: items.length }, (_, i) => i);
  const tokensOf = (i: number) => sequenceLength(items.get(i));
  const { batches: scheduled, epochAt } = stageBatches(all, settings, { seed, tokensOf, tokens });
  const batches = [...scheduled];
  const mixed = options.pairs ? mixProblems(batches, (i) => items.get(i).problem) : batches;
  return planned(items, mixed, options, epochAt);
}

/** The plan for held-out items: a single batch. With a single problem it has no mismatched pairs. */
export function heldOutPlan(items: Dataset<OfflineItem>, options: OfflinePlanOptions): OfflinePlan {
  const all = Array.from({ length: items.length }, (_, i) => i);
  const problems = new Set(all.map((i) => items.get(i).problem));
  return planned(items, [all], { ...options, pairs: options.pairs && problems.size > 1 });
}

function planned(
  items: Dataset<OfflineItem>,
  batches: readonly (readonly number[])[],
  { pairs, maxLength }: OfflinePlanOptions,
  epochAt: OfflinePlan['epochAt'] = (batch) => batch,
): OfflinePlan {
  const starts: number[] = [];
  let references = items.length;
  for (const batch of batches) {
    starts.push(references);
    if (pairs) references += batch.length;
  }
  const itemsOf = (index: number) => (batches[index] as number[]).map((i) => items.get(i));
  function pairsOf(index: number): readonly OfflineItem[] {
    if (!pairs) return [];
    const batch = itemsOf(index);
    const partners = mismatch(batch.map(({ problem }) => problem));
    return batch.map((asked, i) => mismatched(asked, batch[partners[i] as number] as OfflineItem, maxLength));
  }
  return {
    items,
    batches,
    references,
    // Computed only for a plan, since it makes the pairs again.
    get tokens() {
      const all = (i: number) => [...itemsOf(i), ...pairsOf(i)];
      const tokensOf = (i: number) => all(i).reduce((sum, item) => sum + sequenceLength(item), 0);
      return batches.reduce((sum, _, i) => sum + tokensOf(i), 0);
    },
    pairsAt: (batch) => starts[batch] as number,
    epochAt,
    pairsOf,
  };
}

/** The items that a reference scores for a plan: its own, then the pairs of each batch. */
export function referencedItems(plan: OfflinePlan): Dataset<OfflineItem> {
  const { items, batches, references } = plan;
  // Pairs are made again when they are wanted; those of the batch that was asked for last are kept.
  let batch = 0;
  let pairs: readonly OfflineItem[] | undefined;
  return dataset(references, (index) => {
    if (index < items.length) return items.get(index);
    const at = batches.findLastIndex((_, i) => plan.pairsAt(i) <= index);
    if (at !== batch || !pairs) pairs = plan.pairsOf(at);
    batch = at;
    return pairs[index - plan.pairsAt(at)] as OfflineItem;
  });
}
