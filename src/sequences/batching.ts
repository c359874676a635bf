/** Order and grouping of sequences: a function of (seed, epoch) alone, so that a resumed run sees the same batches. */
import { type Dataset, dataset } from '../data/dataset.js';
import { PhiloxStream } from '../random/philox.js';
import type { Device } from '../runtime/device.js';

/** Domain of the random stream that orders the data. */
const ORDER = 0x6f726472;

/** 0 … n − 1. */
function indicesTo(n: number): Int32Array {
  return new Int32Array(n).map((_, i) => i);
}

/** A random permutation of 0 … n − 1 (Fisher–Yates). */
export function epochOrder(n: number, seed: number, epoch: number): Int32Array {
  const order = indicesTo(n);
  const stream = new PhiloxStream(seed, ORDER, epoch);
  for (let i = n - 1; i > 0; i--) {
    const j = stream.below(i + 1);
    const moved = order[i] as number;
    order[i] = order[j] as number;
    order[j] = moved;
  }
  return order;
}

/** Groups consecutive items up to a total size of `budget`; an item that exceeds it alone forms its own group. */
export function groupBySize<T>(items: Iterable<T>, sizeOf: (item: T) => number, budget: number): T[][] {
  const groups: T[][] = [];
  let total = Number.POSITIVE_INFINITY;
  for (const item of items) {
    const size = sizeOf(item);
    if (total + size > budget) {
      groups.push([]);
      total = 0;
    }
    groups.at(-1)?.push(item);
    total += size;
  }
  return groups;
}

/** Tokens of a forward that scores, at most and at least. */
const SCORED = { most: 4096, least: 512 };

/** Multiply-adds of a forward after which a CPU looks at the signal: about a second on two cores of 2024. */
const BETWEEN_LOOKS = 2 ** 38;

/**
 * Tokens of a forward that scores; no score depends on it. A CPU takes seconds for the most of a large model, so it takes fewer at once
 * where a signal may stop it in between.
 */
export function tokensAtOnce({ device, config }: ScoringDecoder, signal: AbortSignal | undefined): number {
  if (!signal || device.info().name !== 'cpu') return SCORED.most;
  const ofToken = 12 * config.numLayers * config.hiddenSize * config.hiddenSize;
  return Math.min(SCORED.most, Math.max(SCORED.least, Math.floor(BETWEEN_LOOKS / ofToken)));
}

export interface ScoringDecoder {
  readonly device: Pick<Device, 'info'>;
  readonly config: { readonly numLayers: number; readonly hiddenSize: number };
}

export interface BatchSettings {
  /** May be fractional. */
  readonly epochs: number;
  /** Limit on the batches; absent: no limit other than the epochs. */
  readonly maxBatches?: number | undefined;
  /** If set, replaces `epochs`: the schedule ends with the batch that reaches this many tokens. */
  readonly tokens?: number | undefined;
  readonly seed: number;
  /** Off: every epoch goes through the items in their own order. Default true. */
  readonly shuffle?: boolean | undefined;
  /** Size of one item, in the unit of `batchSize`. */
  readonly sizeOf: (item: number) => number;
  readonly batchSize: number;
  readonly tokensOf: (item: number) => number;
}

export interface BatchSchedule {
  readonly batches: Dataset<readonly number[]>;
  /** Tokens of all batches. */
  readonly tokens: number;
  /** Epochs done after `batch` batches. */
  epochAt(batch: number): number;
}

/**
 * The items of each batch. Epoch e is the same for every run with this seed, whatever came before. An item takes 4 bytes an
 * epoch.
 */
export function scheduleBatches(items: ArrayLike<number>, settings: BatchSettings): BatchSchedule {
  const { seed, shuffle = true, sizeOf, batchSize, tokensOf } = settings;
  const maxBatches = settings.maxBatches ?? Number.POSITIVE_INFINITY;
  const maxTokens = settings.tokens ?? Number.POSITIVE_INFINITY;
  const epochs = settings.tokens === undefined ? settings.epochs : Number.POSITIVE_INFINITY;
  const scheduled: Epoch[] = [];
  let batches = 0;
  let tokens = 0;
  for (
    let epoch = 0;
    epoch < epochs && batches < maxBatches && tokens < maxTokens && items.length > 0;
    epoch++
  ) {
    const order = shuffle ? epochOrder(items.length, seed, epoch) : indicesTo(items.length);
    for (let i = 0; i < order.length; i++) order[i] = items[order[i] as number] as number;
    const ends = groupEnds(order, sizeOf, batchSize);
    const share = Math.min(1, epochs - epoch);
    const wanted = Math.max(1, Math.round(share * ends.length));
    let taken = 0;
    let at = 0;
    while (taken < wanted && batches + taken < maxBatches && tokens < maxTokens) {
      for (const end = ends[taken++] as number; at < end; at++) tokens += tokensOf(order[at] as number);
    }
    const isWhole = at === order.length;
    scheduled.push({
      before: batches,
      groups: ends.length,
      order: isWhole ? order : order.slice(0, at),
      ends: isWhole ? ends : ends.slice(0, taken),
    });
    batches += taken;
  }
  return {
    batches: dataset(batches, (batch) => {
      const { before, order, ends } = scheduled.findLast((epoch) => epoch.before <= batch) as Epoch;
      const at = batch - before;
      return Array.from(order.subarray(at === 0 ? 0 : ends[at - 1], ends[at]));
    }),
    tokens,
    epochAt(batch) {
      // An epoch that was cut short counts with all its batches, so that this never runs ahead.
      let before = 0;
      for (const [epoch, { groups }] of scheduled.entries()) {
        if (batch <= before + groups) return epoch + (batch - before) / groups;
        before += groups;
      }
      return Number.NaN;
    },
  };
}

/** The batches that are taken of an epoch. */
interface Epoch {
  /** Batches of the epochs before. */
  readonly before: number;
  /** Batches of the whole epoch. */
  readonly groups: number;
  /** Items of the batches that are taken. */
  readonly order: Int32Array;
  /** The end of each batch in `order`. */
  readonly ends: Uint32Array;
}

/** The ends of the groups of `groupBySize`. */
function groupEnds(items: Int32Array, sizeOf: (item: number) => number, budget: number): Uint32Array {
  const ends = new Uint32Array(items.length);
  let groups = 0;
  let total = 0;
  for (let i = 0; i < items.length; i++) {
    const size = sizeOf(items[i] as number);
    if (i > 0 && total + size > budget) {
      ends[groups++] = i;
      total = 0;
    }
    total += size;
  }
  if (items.length > 0) ends[groups++] = items.length;
  return ends.slice(0, groups);
}
