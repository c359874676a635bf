/** Log-probs of the reference, computed once before training: the roles need no second model, and later runs may use them. */
import type { Dataset } from '../../../data/dataset.js';
import type { Decoder, Role } from '../../../models/decoder.js';
import { StepTrainError } from '../../../native/errors.js';
import { type OfflineItem, offlineSequence, sequenceLength } from '../../../scoring/implicit/items.js';
import { readSums, type SpanSums } from '../../../scoring/implicit/sums.js';
import { groupBySize } from '../../../sequences/batching.js';
import { overGroups } from '../../../sequences/divided.js';
import type { MakingStage, SaveSettings } from '../../../train/stage.js';

export interface ReferenceOptions {
  readonly name: string;
  readonly decoder: Decoder;
  /** The reference of the policy, without dropout: the policy as it is now, or the base without its adapter. */
  readonly role: Role;
  /** Replaces `decoder` and `role`; loaded while the stage is open. */
  readonly load?: (() => Promise<LoadedReference>) | undefined;
  readonly items: Dataset<OfflineItem>;
  readonly microBatchTokens: number;
  readonly settings: SaveSettings;
}

export interface LoadedReference {
  readonly decoder: Decoder;
  readonly role: Role;
  dispose(): void;
}

/** Items of one step of the stage: a number of them, so that the steps of a run do not depend on its micro-batches. */
const ITEMS = 128;

/** A row for each item: the sums of its answers. */
export function referenceStage(options: ReferenceOptions): MakingStage {
  const { name, items, microBatchTokens, settings } = options;
  const order = Array.from({ length: items.length }, (_, i) => i);
  return {
    name,
    artefact: name,
    steps: Math.ceil(items.length / ITEMS),
    rows: items.length,
    settings,
    batching: {},
    open: () => {
      let loaded: LoadedReference | undefined;
      return {
        async begin() {
          loaded = await options.load?.();
        },
        async step(index, signal) {
          const { decoder, role } = loaded ?? options;
          const chosen = order.slice(index * ITEMS, (index + 1) * ITEMS);
          const score = async (group: readonly number[]) => {
            const sequences = group.map((i) => offlineSequence(items.get(i), i));
            const sums = await readSums(decoder, role, sequences);
            let at = 0;
            return group.map((item, k) => {
              const { answers, ids } = sequences[k] as (typeof sequences)[number];
              at += answers.length;
              const row = { item, sums: sums.slice(at - answers.length, at) };
              return { row, tokens: ids.length };
            });
          };
          const groups = groupBySize(chosen, (i) => sequenceLength(items.get(i)), microBatchTokens);
          const found = (await overGroups(decoder.device, groups, score, { signal }))?.flat();
          if (!found) return undefined;
          const rows = found.map(({ row }) => row);
          const tokens = found.reduce((sum, each) => sum + each.tokens, 0);
          return { metrics: { items: rows.length }, shown: { items: rows.length }, tokens, rows };
        },
        dispose() {
          loaded?.dispose();
          loaded = undefined;
        },
      };
    },
  };
}

/** The sums of each item by answer, from the rows of the artefact. @throws StepTrainError for rows of other data */
export async function referenceSums(
  rows: AsyncIterable<{ readonly row: Readonly<Record<string, unknown>> }>,
  items: number,
): Promise<SpanSums[][]> {
  if (items === 0) return [];
  const sums: SpanSums[][] = [];
  for await (const { row } of rows) sums.push(row.sums as SpanSums[]);
  if (sums.length !== items) {
    throw new StepTrainError(
      'E_DATA',
      `the reference has ${sums.length} rows and the data ${items} answers or pairs; it belongs to another run`,
    );
  }
  return sums;
}
