/** Inputs of a step's kernels: its tokens, and the positions of their keys and values. */
import type { Decoder } from '../../models/decoder.js';
import { advance, PAGE_TOKENS } from '../../ops/cache.js';
import type { Tensor } from '../../runtime/tensor.js';
import type { CachePlaces } from '../cache/keys-values.js';
import { pagesFor } from '../cache/pages.js';
import type { Row, Slice } from '../scheduler.js';
import type { StepDraws } from './draws.js';

/** T tokens of R rows. */
export interface StepInputs extends CachePlaces {
  /** i32 [T] */
  readonly ids: Tensor;
  /** i32 [T] */
  readonly positions: Tensor;
  /** Max tokens of a row. */
  readonly longest: number;
}

/** A step whose every row draws a token. */
export interface DrawingStep {
  readonly rows: readonly Row[];
  /** i32 [R]: the drawn tokens. */
  readonly tokens: Tensor;
  /** i32 [R]: tokens of each row before it. */
  readonly lengths: Tensor;
  /** The same, as the host counts them. */
  readonly counts: readonly number[];
  /** The tokens' buffers, if a recording drew them. */
  readonly draws?: StepDraws;
}

/** The inputs of `slices` whose tokens are known. */
export function stepInputs({ device }: Decoder, slices: readonly Slice<Row>[]): StepInputs {
  const ids: number[] = [];
  const positions: number[] = [];
  const slots: number[] = [];
  const queryEnds: number[] = [];
  for (const { row, from, to, cached, pages } of slices) {
    for (let at = from; at < to; at++) {
      ids.push(row.tokens[at] as number);
      positions.push(at);
      const page = pages[Math.floor(at / PAGE_TOKENS)] as number;
      slots.push(at < cached ? -1 : page * PAGE_TOKENS + (at % PAGE_TOKENS));
    }
    queryEnds.push(ids.length);
  }
  return {
    longest: longestOf(slices),
    decodes: slices.every(({ from, to, cached }) => to - from === 1 && cached <= from),
    ids: device.tensor(Int32Array.from(ids)),
    positions: device.tensor(Int32Array.from(positions)),
    slots: device.tensor(Int32Array.from(slots)),
    queryOffsets: device.tensor(Int32Array.from([0, ...queryEnds])),
    pages: pageTable(device, slices),
    states: statesOf(device, slices),
    lengths: device.tensor(Int32Array.from(slices, ({ to }) => to)),
  };
}

/** The inputs of slices of one token each: those that the rows draw in `before`, which the host does not know yet. */
export function followingInputs(
  { device }: Decoder,
  slices: readonly Slice<Row>[],
  { rows, tokens, lengths }: DrawingStep,
): StepInputs {
  const places = new Map(rows.map((row, i) => [row, i]));
  const from = Int32Array.from(slices, ({ row }) => places.get(row) as number);
  const pages = pageTable(device, slices);
  return {
    states: statesOf(device, slices),
    longest: longestOf(slices),
    decodes: true,
    pages,
    queryOffsets: device.tensor(Int32Array.from({ length: slices.length + 1 }, (_, r) => r)),
    ...advance({ tokens, lengths, rows: device.tensor(from), pages }),
  };
}

function statesOf(device: Decoder['device'], slices: readonly Slice<Row>[]): Tensor | undefined {
  if (slices[0]?.state === undefined) return undefined;
  return device.tensor(Int32Array.from(slices, ({ state = -1 }) => state));
}

export const longestOf = (slices: readonly Slice<Row>[]) => Math.max(...slices.map(({ to }) => to));

function pageTable(device: Decoder['device'], slices: readonly Slice<Row>[]): Tensor {
  const width = pagesFor(longestOf(slices));
  const pages = new Int32Array(slices.length * width).fill(-1);
  slices.forEach(({ pages: own }, r) => {
    pages.set(own.slice(0, width), r * width);
  });
  return device.tensor(pages, [slices.length, width]);
}
