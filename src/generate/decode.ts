/** One step: the next tokens of some rows through the model, and a token drawn for each row that came to its end. */
import type { Decoder, Role } from '../models/decoder.js';
import { PAGE_TOKENS } from '../ops/cache.js';
import { headLogits } from '../ops/head.js';
import { gatherRows } from '../ops/memory.js';
import { sample } from '../ops/sampling.js';
import type { Tensor } from '../runtime/tensor.js';
import type { KeyValueCache } from './cache.js';
import { pagesFor } from './pages.js';
import { type SampledRow, sampleInputs } from './sampling.js';
import type { Row, Slice } from './scheduler.js';

/** A token that was drawn. Log-probabilities in nats. */
export interface Drawn {
  readonly token: number;
  /** Under the model, temperature 1. */
  readonly logprob: number;
  /** At the temperature, before any filter. */
  readonly temperedLogprob: number;
  /** Under the distribution that it was drawn from. */
  readonly samplingLogprob: number;
  /** A logit was not a number, or no token was left: there is no token. */
  readonly failed: boolean;
}

export interface DecodedModel {
  readonly decoder: Decoder;
  readonly role: Role;
  readonly cache: KeyValueCache;
}

/**
 * Computes `slices`, all under one role, and writes their keys and values into the cache.
 *
 * @returns for each slice that reaches the end of its row, in order, the token that comes next
 */
export async function decode<R extends Row>(
  { decoder, role, cache }: DecodedModel,
  slices: readonly Slice<R>[],
  rowOf: (row: R) => SampledRow,
): Promise<Drawn[]> {
  const { device } = decoder;
  const sampled = slices.filter(({ row, to }) => to === row.tokens.length);
  const outputs = device.scope(() => {
    const batch = upload(decoder, slices);
    const hidden = decoder.forwardAttending(batch, role, (q, k, v, options) =>
      cache.attend(q, k, v, options, batch),
    );
    if (sampled.length === 0) return undefined;
    const { queryEnds } = batch;
    const last = slices.flatMap(({ row, to }, i) =>
      to === row.tokens.length ? [(queryEnds[i] as number) - 1] : [],
    );
    const rows = gatherRows(hidden, device.tensor(Int32Array.from(last)));
    const logits = headLogits(rows, decoder.head(role));
    return sample(logits, sampleInputs(sampled.map(({ row }) => rowOf(row))));
  }, 'generate');
  if (!outputs) return [];
  try {
    const read = (tensor: Tensor) => tensor.read();
    const [tokens, logprobs, tempered, sampling, status] = await Promise.all([
      read(outputs.tokens),
      read(outputs.logprobs),
      read(outputs.temperedLogprobs),
      read(outputs.samplingLogprobs),
      read(outputs.status),
    ]);
    return sampled.map((_, i) => ({
      token: tokens[i] as number,
      logprob: logprobs[i] as number,
      temperedLogprob: tempered[i] as number,
      samplingLogprob: sampling[i] as number,
      failed: status[i] !== 0,
    }));
  } finally {
    for (const tensor of Object.values(outputs)) tensor.dispose();
  }
}

/** The tokens of the slices one after another, and where their keys and values lie. */
function upload({ device }: Decoder, slices: readonly Slice<Row>[]) {
  const ids: number[] = [];
  const positions: number[] = [];
  const slots: number[] = [];
  const queryEnds: number[] = [];
  const width = Math.max(...slices.map(({ to }) => pagesFor(to)));
  const pages = new Int32Array(slices.length * width).fill(-1);
  slices.forEach(({ row, from, to, pages: own }, r) => {
    for (let at = from; at < to; at++) {
      ids.push(row.tokens[at] as number);
      positions.push(at);
      slots.push((own[Math.floor(at / PAGE_TOKENS)] as number) * PAGE_TOKENS + (at % PAGE_TOKENS));
    }
    queryEnds.push(ids.length);
    pages.set(own.slice(0, width), r * width);
  });
  const longest = Math.max(...slices.map(({ to }) => to));
  return {
    longest,
    queryEnds,
    ids: device.tensor(Int32Array.from(ids)),
    positions: device.tensor(Int32Array.from(positions)),
    slots: device.tensor(Int32Array.from(slots)),
    queryOffsets: device.tensor(Int32Array.from([0, ...queryEnds])),
    pages: device.tensor(pages, [slices.length, width]),
    lengths: device.tensor(Int32Array.from(slices, ({ to }) => to)),
  };
}
