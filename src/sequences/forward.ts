/** The forward of a group of sequences, and the outputs read from it; every method builds on these. */
import { raggedBatch } from '../models/batch.js';
import type { Decoder, LinearHead, Role } from '../models/decoder.js';
import { scalarOutputs } from '../models/heads.js';
import { type HeadLogprobs, headLogits, headLogprobs, headSelect } from '../ops/head.js';
import { gatherRows, reshape } from '../ops/memory.js';
import type { Tensor } from '../runtime/tensor.js';
import type { AnswerRow, TrainingSequence } from './sequence.js';

export type ForwardSequence = Pick<TrainingSequence, 'ids' | 'positions' | 'branch' | 'rowId'>;

/** Hidden states of a group of sequences. Rows are counted within their sequence. */
export interface HiddenStates {
  readonly decoder: Decoder;
  readonly role: Role;
  /** [T, hidden] */
  readonly hidden: Tensor;
  /** Row at which each sequence begins. */
  readonly offsets: readonly number[];
}

export function hiddenStates(
  decoder: Decoder,
  role: Role,
  sequences: readonly ForwardSequence[],
): HiddenStates {
  const batch = raggedBatch(
    decoder.device,
    sequences.map(({ ids, positions, rowId, branch }) => ({
      ids,
      positions,
      rowId,
      ...(branch ? { branch } : {}),
    })),
    decoder.config,
  );
  try {
    return { decoder, role, hidden: decoder.forward(batch, role), offsets: batch.offsets };
  } finally {
    batch.dispose();
  }
}

/** Rows by sequence. */
export type Rows = readonly (readonly AnswerRow[])[];

/** Log-probability, entropy and arg-max at each row, in order. Only these rows reach the head. */
export function logprobsAt(
  states: HiddenStates,
  rows: Rows,
  options: { readonly temperature?: number; readonly entropyGradient?: boolean } = {},
): HeadLogprobs {
  const { decoder, role, hidden } = states;
  const { device } = decoder;
  return device.scope(() => {
    const chosen = gatherRows(hidden, rowTensor(states, rows));
    return headLogprobs(chosen, decoder.head(role), tokenTensor(states, rows), options);
  });
}

/** Logits of the rows' tokens alone, f32 [R]: enough where only differences within a row count. */
export function logitsAt(states: HiddenStates, rows: Rows): Tensor {
  const { decoder, role, hidden } = states;
  const { device } = decoder;
  return device.scope(() => {
    const tokens = tokenTensor(states, rows);
    const count = tokens.size;
    const chosen = gatherRows(hidden, rowTensor(states, rows));
    const logits = headSelect(chosen, decoder.head(role), tokens.reshape([count, 1]));
    return reshape(logits, [count]);
  });
}

/** Logits of the whole vocabulary at each row over `temperature`, f32 [R, V]. */
export function vocabularyAt(states: HiddenStates, rows: Rows, temperature = 1): Tensor {
  const { decoder, role, hidden } = states;
  return decoder.device.scope(() =>
    headLogits(gatherRows(hidden, rowTensor(states, rows)), decoder.head(role), temperature),
  );
}

/** Outputs of a scalar head at each row, f32 [R]. */
export function scalarsAt(
  states: HiddenStates,
  head: LinearHead,
  rows: readonly (readonly number[])[],
): Tensor {
  const { device } = states.decoder;
  const at = rows.flatMap((list, i) => list.map((row) => (states.offsets[i] as number) + row));
  return device.scope(() => scalarOutputs(states.hidden, head, device.tensor(Int32Array.from(at))));
}

/** Rows of one sequence, each with the token whose log-probability is requested. */
export interface ScoredRows {
  readonly sequence: ForwardSequence;
  readonly rows: readonly AnswerRow[];
}

/** Log-probability of each requested token, in order of sequences and rows. */
export function scoreRows(decoder: Decoder, role: Role, items: readonly ScoredRows[]): HeadLogprobs {
  return decoder.device.scope(() => {
    const states = hiddenStates(
      decoder,
      role,
      items.map(({ sequence }) => sequence),
    );
    return logprobsAt(
      states,
      items.map(({ rows }) => rows),
    );
  });
}

function rowTensor({ decoder, offsets }: HiddenStates, rows: Rows): Tensor {
  const at = rows.flatMap((list, i) => list.map(({ row }) => (offsets[i] as number) + row));
  return decoder.device.tensor(Int32Array.from(at));
}

function tokenTensor({ decoder }: HiddenStates, rows: Rows): Tensor {
  const tokens = rows.flatMap((list) => list.map(({ token }) => token));
  return decoder.device.tensor(Int32Array.from(tokens));
}
