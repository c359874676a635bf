/**
 * One step: a forward of the next tokens of some rows, and a sampled token for each row that reaches its end. It is
 * queued at once; its results are read later, and the step after it may be queued before that.
 */
import type { AdapterStack } from '../../models/adapter-stack.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { headLogits } from '../../ops/head.js';
import { gatherRows } from '../../ops/memory.js';
import { type SampledTokens, sample } from '../../ops/sampling.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { KeyValueCache } from '../cache/keys-values.js';
import { queueScores, readScores, type Scores } from '../rows/scores.js';
import type { Row, Slice } from '../scheduler.js';
import { type Drawn, drawnOf } from './drawn.js';
import { type DrawingStep, followingInputs, stepInputs } from './inputs.js';
import { type SampledRow, sampleInputs } from './sampling-inputs.js';

/** A row, as input of a step. */
export interface DecodedRow extends Row {
  /** The adapter of `role`. */
  readonly as: Pick<Role, 'adapter'>;
  /** Settings for drawing its token at `position`: the next one or, before that is known, the one after it. */
  sampledAt(position: number): SampledRow;
  /** The number of first tokens whose log-probabilities are requested, and of alternatives to each. */
  readonly scored: number;
  readonly scoredAlternatives: number;
}

export interface DecodedModel {
  readonly decoder: Decoder;
  readonly cache: KeyValueCache;
  /** The role whose weights all rows read: the base, or an adapter that keeps weights whole. */
  readonly role: Role;
  /** The pairs of the rows' adapters, where any has some. */
  readonly stack?: AdapterStack | undefined;
}

interface Decoded<R extends DecodedRow> {
  /** The next token of each slice that reaches the end of its row, in order. */
  readonly drawn: readonly Drawn[];
  readonly scores: readonly Scores<R>[];
}

/** A step that is queued, until `dispose`. */
export interface QueuedStep<R extends DecodedRow> {
  /** The rows that draw a token, in order. */
  readonly rows: readonly R[];
  readonly result: Promise<Decoded<R>>;
  /** The draws of all slices. */
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
    const hidden = decoder.forwardAttending(batch, as, cache.past(batch));
    return {
      lengths: batch.lengths,
      scored: queueScores(decoder, role, hidden, slices),
      drawn: rows.length > 0 ? draw(decoder, role, hidden, lastRows(slices), rows) : undefined,
    };
  }, 'generate');
  const { drawn, scored, lengths } = outputs;
  const tensors = [
    lengths,
    scored?.logprobs,
    scored?.hidden,
    drawn?.logits,
    ...Object.values(drawn?.tokens ?? {}),
  ];
  const result = Promise.all([readDrawn(drawn, rows), readScores(decoder, role, scored)]);
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
  return { tokens: sample(logits, sampleInputs(rows)), logits: alternativeLogits(logits, rows) };
}

/** The logits of the rows that ask for alternatives. */
export function alternativeLogits(logits: Tensor, rows: readonly SampledRow[]): Tensor | undefined {
  const asking = rows.flatMap(({ settings }, i) => (settings.topLogprobs > 0 ? [i] : []));
  if (asking.length === 0) return undefined;
  const { device } = logits;
  return device.scope(() => gatherRows(logits, device.tensor(Int32Array.from(asking))), 'generate');
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
