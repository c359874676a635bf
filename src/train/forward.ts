/** The forward of a group of sequences up to log-probabilities of chosen tokens: what every method starts from. */
import { type RaggedBatch, raggedBatch } from '../models/batch.js';
import type { Decoder, Role } from '../models/decoder.js';
import { type HeadLogprobs, headLogprobs } from '../ops/head.js';
import { gatherRows } from '../ops/memory.js';
import type { Tensor } from '../runtime/tensor.js';
import type { TrainingSequence } from './sequence.js';

/** Rows of one sequence whose next token is asked for. */
export interface ScoredRows {
  readonly sequence: Pick<TrainingSequence, 'ids' | 'positions' | 'branch' | 'rowId'>;
  readonly rows: readonly { readonly row: number; readonly token: number }[];
}

/** Log-probabilities of each asked token, in order of sequences and rows. Only these rows reach the head. */
export function scoreRows(decoder: Decoder, role: Role, items: readonly ScoredRows[]): HeadLogprobs {
  const { device } = decoder;
  const batch: RaggedBatch = raggedBatch(
    device,
    items.map(({ sequence }) => ({
      ids: sequence.ids,
      positions: sequence.positions,
      rowId: sequence.rowId,
      ...(sequence.branch ? { branch: sequence.branch } : {}),
    })),
    decoder.config,
  );
  const rows: number[] = [];
  const tokens: number[] = [];
  items.forEach((item, i) => {
    for (const { row, token } of item.rows) {
      rows.push((batch.offsets[i] as number) + row);
      tokens.push(token);
    }
  });
  try {
    return device.scope(() => {
      const hidden: Tensor = decoder.forward(batch, role);
      const chosen = gatherRows(hidden, device.tensor(Int32Array.from(rows)));
      return headLogprobs(chosen, decoder.head(role), device.tensor(Int32Array.from(tokens)));
    });
  } finally {
    batch.dispose();
  }
}
