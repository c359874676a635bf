/** Log-probs of answers summed over spans, under the policy and the reference. */
import type { Decoder, Role } from '../../models/decoder.js';
import { spanSum } from '../../ops/advantage.js';
import type { Tensor } from '../../runtime/tensor.js';
import { scoreRows } from '../../sequences/forward.js';
import { type AnswerTokens, learnedBefore, type OfflineSequence } from './items.js';

/** Sums over one answer: the sum over all of it, then one for each step. */
export type SpanSums = readonly number[];

/** An answer of a micro-batch. */
export interface ScoredAnswer {
  readonly tokens: AnswerTokens;
  /** Index of its item in the micro-batch. */
  readonly item: number;
  /** Row of its first learned token in the log-probs. */
  readonly begin: number;
  /** Sums under the reference, if the objective has one. */
  readonly reference: SpanSums | undefined;
}

/** A whole answer or, with `step`, that step of it. */
export interface SpanOf {
  readonly answer: ScoredAnswer;
  readonly step?: number;
}

/** A micro-batch: token log-probs of the policy, f32 [T], and the answers that they belong to. */
export interface ScoredBatch {
  readonly logprobs: Tensor;
  readonly answers: readonly ScoredAnswer[];
}

/** f32 [spans] each. */
export interface SpanScores {
  /** Differentiable. */
  readonly policy: Tensor;
  /** Zeros without a reference. */
  readonly ref: Tensor;
}

/** Runs the forward of a group of sequences. `references`: by answer, in order; absent without a reference. */
export function scoreBatch(
  decoder: Decoder,
  role: Role,
  sequences: readonly OfflineSequence[],
  references?: readonly SpanSums[],
): ScoredBatch {
  const { logprobs } = scoreRows(
    decoder,
    role,
    sequences.map((sequence) => ({ sequence, rows: sequence.answers.flatMap(({ rows }) => rows) })),
  );
  const answers: ScoredAnswer[] = [];
  let begin = 0;
  for (const [item, sequence] of sequences.entries()) {
    for (const { tokens, rows } of sequence.answers) {
      answers.push({ tokens, item, begin, reference: references?.[answers.length] });
      begin += rows.length;
    }
  }
  return { logprobs, answers };
}

/** Log-probs summed over spans, or their means per token. */
export function spanScores(
  { logprobs }: ScoredBatch,
  spans: readonly SpanOf[],
  { mean = false }: { readonly mean?: boolean } = {},
): SpanScores {
  const { device } = logprobs;
  const bounds = spans.map(spanBounds);
  const at = device.tensor(Int32Array.from(bounds.flat()), [spans.length, 2]);
  const ref = Float32Array.from(spans, ({ answer, step }, i) => {
    const sum = answer.reference?.[step === undefined ? 0 : step + 1] ?? 0;
    const [begin, end] = bounds[i] as [number, number];
    return mean ? sum / (end - begin) : sum;
  });
  return { policy: spanSum(logprobs, at, { mean }), ref: device.tensor(ref) };
}

/** The sums of every answer, read back: for the reference, and where no gradient is wanted. */
export async function readSums(
  decoder: Decoder,
  role: Role,
  sequences: readonly OfflineSequence[],
): Promise<SpanSums[]> {
  const { device } = decoder;
  const answers: ScoredAnswer[] = [];
  const sums = device.scope(() => {
    const batch = scoreBatch(decoder, role, sequences);
    answers.push(...batch.answers);
    const spans = batch.answers.flatMap((answer): SpanOf[] => [
      { answer },
      ...answer.tokens.steps.map((_, step) => ({ answer, step })),
    ]);
    return spanSum(
      batch.logprobs,
      device.tensor(Int32Array.from(spans.flatMap(spanBounds)), [spans.length, 2]),
    );
  }, 'reference');
  const values = await sums.readFloats();
  sums.dispose();
  let at = 0;
  return answers.map(({ tokens }) => {
    const from = at;
    at += 1 + tokens.steps.length;
    return Array.from(values.subarray(from, at));
  });
}

/** Begin and end of a span in the log-probs of its micro-batch. */
export function spanBounds({ answer: { tokens, begin }, step }: SpanOf): [number, number] {
  const { ids, from, steps } = tokens;
  const span = step === undefined ? { begin: from, end: ids.length } : steps[step];
  if (!span) throw new RangeError(`the answer has no step ${step}`);
  return [begin + learnedBefore(tokens, span.begin), begin + learnedBefore(tokens, span.end)];
}
