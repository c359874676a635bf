/** Log-probabilities of given tokens, such as those of a prompt, and of alternatives at their positions. */
import type { Decoder, Role } from '../../models/decoder.js';
import { headLogits, headLogprobs } from '../../ops/head.js';
import { gatherRows } from '../../ops/memory.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { Row, Slice } from '../scheduler.js';
import { likeliestTokens, type TokenLogprob } from '../step/drawn.js';

export interface ScoredRow extends Row {
  /** The number of first tokens whose log-probabilities are requested, and of alternatives to each. */
  readonly scored: number;
  readonly scoredAlternatives: number;
}

/** Log-probabilities of tokens[first], tokens[first + 1], … under the model. */
export interface Scores<R> {
  readonly row: R;
  readonly first: number;
  readonly logprobs: Float32Array;
  /** The most likely tokens in their places, where the row asks for them. */
  readonly likeliest?: readonly (readonly TokenLogprob[])[];
}

export interface QueuedScores<R> {
  readonly logprobs: Tensor;
  /** Hidden states for the logits, if a row asks for alternatives. */
  readonly hidden: Tensor | undefined;
  readonly targets: readonly number[];
  readonly slices: readonly { row: R; first: number; begin: number; end: number }[];
}

/** Logits that are read at a time: a prompt's are too many to be held together. */
const MAX_LOGITS = 2 ** 24;

/** Queues the requested log-probabilities of tokens that follow tokens of the slices. */
export function queueScores<R extends ScoredRow>(
  decoder: Decoder,
  role: Role,
  hidden: Tensor,
  slices: readonly Slice<R>[],
): QueuedScores<R> | undefined {
  const rows: number[] = [];
  const targets: number[] = [];
  const scored: { row: R; first: number; begin: number; end: number }[] = [];
  let offset = 0;
  for (const { row, from, to } of slices) {
    const begin = rows.length;
    for (let at = from; at < Math.min(to, row.scored - 1); at++) {
      rows.push(offset + at - from);
      targets.push(row.tokens[at + 1] as number);
    }
    if (rows.length > begin) scored.push({ row, first: from + 1, begin, end: rows.length });
    offset += to - from;
  }
  if (rows.length === 0) return undefined;
  const { device } = decoder;
  const chosen = gatherRows(hidden, device.tensor(Int32Array.from(rows)));
  const { logprobs } = headLogprobs(chosen, decoder.head(role), device.tensor(Int32Array.from(targets)));
  const asksForMore = scored.some(({ row }) => row.scoredAlternatives > 0);
  return { logprobs, hidden: asksForMore ? chosen : undefined, targets, slices: scored };
}

export async function readScores<R extends ScoredRow>(
  decoder: Decoder,
  role: Role,
  queued: QueuedScores<R> | undefined,
): Promise<readonly Scores<R>[]> {
  if (!queued) return [];
  const { hidden, targets, slices } = queued;
  const logprobs = await queued.logprobs.readFloats();
  const scores: Scores<R>[] = [];
  for (const { row, first, begin, end } of slices) {
    const own = { row, first, logprobs: logprobs.slice(begin, end) };
    const likeliest: (readonly TokenLogprob[])[] = [];
    const count = row.scoredAlternatives;
    if (hidden && count > 0)
      for await (const [i, logits] of logitsOf(decoder, role, hidden, begin, end)) {
        // log p = logit − log Σ exp(logit); the sum follows from the given token.
        const shift = (logprobs[i] as number) - (logits[targets[i] as number] as number);
        likeliest.push(likeliestTokens(logits, count, shift));
      }
    scores.push(count > 0 ? { ...own, likeliest } : own);
  }
  return scores;
}

/** The logits of rows begin to end − 1, some at a time. */
async function* logitsOf(
  decoder: Decoder,
  role: Role,
  hidden: Tensor,
  begin: number,
  end: number,
): AsyncGenerator<readonly [row: number, logits: Float32Array]> {
  const { vocabSize } = decoder.config;
  const size = Math.max(1, Math.floor(MAX_LOGITS / vocabSize));
  for (let from = begin; from < end; from += size) {
    const to = Math.min(end, from + size);
    const part = hidden.slice(from, to);
    const logits = headLogits(part, decoder.head(role));
    const values = await logits.readFloats();
    for (const tensor of [logits, part]) tensor.dispose();
    for (let row = from; row < to; row++)
      yield [row, values.subarray((row - from) * vocabSize, (row - from + 1) * vocabSize)];
  }
}
