/**
 * One step: a forward of the next tokens of some rows, and a sampled token for each row that reaches its end. It is queued at
 * once; what it gives is read later, and the step after it may be queued before that.
 */
import type { AdapterStack } from '../models/adapter-stack.js';
import type { Decoder, Role } from '../models/decoder.js';
import { headLogits, headLogprobs } from '../ops/head.js';
import { gatherRows } from '../ops/memory.js';
import { type SampledTokens, sample } from '../ops/sampling.js';
import type { Tensor } from '../runtime/tensor.js';
import type { KeyValueCache } from './cache.js';
import { type Drawn, drawnOf } from './drawn.js';
import { type SampledRow, sampleInputs } from './sampling.js';
import type { Row, Slice } from './scheduler.js';
import { type DrawingStep, followingInputs, stepInputs } from './step-inputs.js';

/** A row, as input of a step. */
export interface DecodedRow extends Row {
  /** What `role` stands for. */
  readonly as: Pick<Role, 'adapter'>;
  /** How its token at `position` is drawn, the next one or, before that is known, the one after it. */
  sampledAt(position: number): SampledRow;
  /** The number of first tokens whose log-probabilities are requested. */
  readonly scored: number;
}

export interface DecodedModel {
  readonly decoder: Decoder;
  readonly cache: KeyValueCache;
  /** What all the rows read in common: the base, or an adapter's weights that are kept whole. */
  readonly role: Role;
  /** The pairs of the rows' adapters, where any has some. */
  readonly stack?: AdapterStack | undefined;
}

export interface Decoded<R extends DecodedRow> {
  /** The next token of each slice that reaches the end of its row, in order. */
  readonly drawn: readonly Drawn[];
  /** Log-probabilities of given tokens: tokens[first], tokens[first + 1], … under the model. */
  readonly scores: readonly { readonly row: R; readonly first: number; readonly logprobs: Float32Array }[];
}

/** A step that is queued, until `dispose`. */
export interface QueuedStep<R extends DecodedRow> {
  /** Those that draw a token, in order. */
  readonly rows: readonly R[];
  readonly result: Promise<Decoded<R>>;
  /** Where every slice draws. */
  readonly drawing: DrawingStep | undefined;
  dispose(): void;
}

/**
 * Queues `slices`, of adapters in `stack`, which write their keys and values into the cache.
 *
 * @param before draws the tokens of the slices, one each, if they are not known yet
 */
export function decode<R extends DecodedRow>(
  { decoder, role, cache, stack }: DecodedModel,
  slices: readonly Slice<R>[],
  before?: DrawingStep,
): QueuedStep<R> {
  const { device } = decoder;
  const ends = slices.filter(reachesEnd);
  const rows = ends.map(({ row, to }) => row.sampledAt(to));
  const outputs = device.scope(() => {
    const batch = before ? followingInputs(decoder, slices, before) : stepInputs(decoder, slices);
    const as = stack ? { ...role, stack, adapterOf: adapters(decoder, stack, slices) } : role;
    const hidden = decoder.forwardAttending(batch, as, (q, k, v, options) =>
      cache.attend(q, k, v, options, batch),
    );
    return {
      lengths: batch.lengths,
      scored: score(decoder, role, hidden, slices),
      drawn: rows.length > 0 ? draw(decoder, role, hidden, lastRows(slices), rows) : undefined,
    };
  }, 'generate');
  const { drawn, scored, lengths } = outputs;
  const tensors = [lengths, scored?.logprobs, drawn?.logits, ...Object.values(drawn?.tokens ?? {})];
  const result = Promise.all([readDrawn(drawn, rows), readScores(scored)]);
  return {
    rows: ends.map(({ row }) => row),
    result: result.then(([drawn, scores]) => ({ drawn, scores })),
    drawing:
      drawn && ends.length === slices.length
        ? {
            rows: ends.map(({ row }) => row),
            tokens: drawn.tokens.tokens,
            lengths,
            counts: slices.map(({ to }) => to),
          }
        : undefined,
    dispose() {
      for (const tensor of tensors) tensor?.dispose();
    },
  };
}

/** A slice whose row draws a token, also where the row's last token is still unknown. */
const reachesEnd = ({ row, to }: Slice<Row>) => to >= row.tokens.length;

/** i32 [T]: where the stack has the adapter of each token. */
function adapters<R extends DecodedRow>(
  { device }: Decoder,
  stack: AdapterStack,
  slices: readonly Slice<R>[],
): Tensor {
  const indices = slices.flatMap(({ row, from, to }) => {
    const { adapter } = row.as;
    return new Array<number>(to - from).fill(adapter ? stack.adapters.indexOf(adapter) : -1);
  });
  return device.tensor(Int32Array.from(indices));
}

/** The last hidden row of each slice that reaches the end of its row. */
function lastRows(slices: readonly Slice<Row>[]): Int32Array<ArrayBuffer> {
  let end = 0;
  const last: number[] = [];
  for (const slice of slices) {
    end += slice.to - slice.from;
    if (reachesEnd(slice)) last.push(end - 1);
  }
  return Int32Array.from(last);
}

interface Scored<R extends DecodedRow> {
  readonly logprobs: Tensor;
  readonly slices: readonly { row: R; first: number; begin: number; end: number }[];
}

/** The requested log-probabilities of tokens that follow tokens of the slices. */
function score<R extends DecodedRow>(
  decoder: Decoder,
  role: Role,
  hidden: Tensor,
  slices: readonly Slice<R>[],
): Scored<R> | undefined {
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
  return { logprobs, slices: scored };
}

/** Tokens for the chosen hidden rows, and the logits of rows with requested alternatives. */
function draw(
  decoder: Decoder,
  role: Role,
  hidden: Tensor,
  chosen: Int32Array<ArrayBuffer>,
  rows: readonly SampledRow[],
): { readonly tokens: SampledTokens; readonly logits: Tensor | undefined } {
  const { device } = decoder;
  const logits = headLogits(gatherRows(hidden, device.tensor(chosen)), decoder.head(role));
  const asking = rows.flatMap(({ settings }, i) => (settings.topLogprobs > 0 ? [i] : []));
  return {
    tokens: sample(logits, sampleInputs(rows)),
    logits: asking.length > 0 ? gatherRows(logits, device.tensor(Int32Array.from(asking))) : undefined,
  };
}

async function readScores<R extends DecodedRow>(
  scored: Scored<R> | undefined,
): Promise<Decoded<R>['scores']> {
  const logprobs = await scored?.logprobs.readFloats();
  return (scored?.slices ?? []).map(({ row, first, begin, end }) => ({
    row,
    first,
    logprobs: (logprobs as Float32Array).slice(begin, end),
  }));
}

async function readDrawn(
  outputs: ReturnType<typeof draw> | undefined,
  rows: readonly SampledRow[],
): Promise<Drawn[]> {
  if (!outputs) return [];
  const { tokens: drawn, logits } = outputs;
  const [tokens, logprobs, tempered, sampling, status, alternatives] = await Promise.all([
    drawn.tokens.read(),
    drawn.logprobs.readFloats(),
    drawn.temperedLogprobs.readFloats(),
    drawn.samplingLogprobs.readFloats(),
    drawn.status.read(),
    logits?.readFloats(),
  ]);
  return drawnOf(rows, { tokens, logprobs, tempered, sampling, status, alternatives });
}
