/**
 * The loop over micro-batches: every stage that learns cuts its optimizer batch here, so that a step learns from the
 * batch, whatever fits in memory at once.
 */
import type { TrainableParameters } from '../autograd/parameters.js';
import { Tape } from '../autograd/tape.js';
import { StepTrainError } from '../native/errors.js';
import { readStatistics, type Statistics } from '../objectives/statistics.js';
import type { Device } from '../runtime/device.js';
import { processesOf } from '../runtime/processes.js';
import type { Tensor } from '../runtime/tensor.js';
import { groupBySize } from '../sequences/batching.js';
import { overGroups } from '../sequences/divided.js';
import type { ProgressPart } from '../terminal/progress.js';
import { dataParallel, overShards, type Passed, turnsOf } from './sums/data-parallel.js';

/** A term of the loss of a micro-batch; their weighted sum, over all micro-batches, is minimised. */
export interface LossTerm<Name extends string = string> {
  /** f32 [1] */
  readonly loss: Tensor;
  /** Weight in the sum. Default 1. */
  readonly weight?: number;
  readonly statistics?: Statistics<Name> | undefined;
  /** f32, read back with the loss. */
  readonly values?: Tensor | undefined;
}

/** A term of one micro-batch, read back. */
export interface ReadTerm<Item, Name extends string, Term, Told = undefined> {
  readonly group: readonly Item[];
  /** The term; only its plain values where another process has computed it. */
  readonly term: Plain<Term>;
  readonly told: Told;
  readonly loss: number;
  /** Empty for a term without any. */
  readonly statistics: Readonly<Record<Name, number>>;
  /** Empty for a term without any. */
  readonly values: Float32Array;
  /** Contribution to the batch's mean of the losses that its forward adds of its own; absent where there are none. */
  readonly auxiliary?: number;
}

/** The fields of a term that are neither tensors nor functions. */
type Plain<Term> = { readonly [Key in keyof Term as Term[Key] extends Scalar ? Key : never]: Term[Key] };
type Scalar = string | number | boolean | null | undefined;

export interface Accumulation<Item, Total, Before, Term = LossTerm, Told = undefined> {
  readonly device: Device;
  /** Tokens of an item. */
  readonly sizeOf: (item: Item) => number;
  /** Tokens in memory at once. */
  readonly microBatchTokens: number;
  /** Computes the normaliser of losses: counts of the whole optimizer batch, which no micro-batch knows by itself. */
  readonly normaliser: (items: readonly Item[]) => Total;
  /** Parameters whose gradients are zeroed, then added to. Absent: the losses are measured and nothing is learned. */
  readonly trains?: readonly TrainableParameters[] | undefined;
  /** Name of the ops in messages and profiles. */
  readonly scope?: string;
  /** A forward of the micro-batch whose results get no gradients. */
  readonly before?: (group: readonly Item[]) => Before;
  /** Hears after each micro-batch how far the batch is: that of a large model takes minutes. */
  readonly report?: ((part: ProgressPart) => void) | undefined;
  /** Further values of the term as JSON, from functions that only the process has which made it. */
  readonly tell?: (
    term: Term,
    read: { readonly loss: number; readonly statistics: Readonly<Record<string, number>> },
  ) => Told;
}

/**
 * Forward and backward of one optimizer batch; gradients are added into the parameters' buffers. A micro-batch without a term is
 * left out.
 *
 * @returns the terms of every micro-batch, in order
 */
export async function accumulate<
  Item,
  Total,
  Name extends string,
  Term extends LossTerm<Name>,
  Before,
  Told = undefined,
>(
  items: readonly Item[],
  options: Accumulation<Item, Total, Before, Term, Told>,
  loss: (group: readonly Item[], total: Total, before: Before) => readonly (Term & LossTerm<Name>)[],
): Promise<ReadTerm<Item, Name, Term, Told>[]> {
  const { device, sizeOf, microBatchTokens, trains, scope } = options;
  const total = options.normaliser(items);
  const sizes = (of: readonly Item[]) => of.reduce((sum, item) => sum + sizeOf(item), 0);
  const tokens = sizes(items);
  const parallel = trains && dataParallel(device);
  const passedOn = reporter(options.report, Math.ceil(items.length / (parallel?.cluster?.size ?? 1)));
  const runGroup = async (group: readonly Item[], passed?: Passed) => {
    const read: Omit<ReadTerm<Item, Name, Term, Told>, 'group'>[] = [];
    const tape = trains && new Tape(device);
    const terms = device.scope(() => {
      const before = options.before?.(group) as Before;
      const forward = () => loss(group, total, before);
      return tape ? tape.run(forward) : forward();
    }, scope);
    const beside = tape?.auxiliary ?? [];
    if (tape) {
      const balanced = beside.filter(({ loss }) => terms.length > 0 && tape.tracks(loss));
      const seeds = [
        ...terms.map(({ loss, weight = 1 }) => [loss, weight] as const),
        ...balanced.map((own) => [own.loss, (own.coefficient * own.tokens) / tokens] as const),
      ];
      if (!passed) tape.backward(seeds);
      else for (const layer of tape.backwardByLayer(seeds)) await passed(layer);
    }
    tape?.dispose();
    for (const term of terms) {
      const found = await readTerm<Name>(term);
      read.push({ term: plain<Term>(term), told: options.tell?.(term, found) as Told, ...found });
    }
    let auxiliary = 0;
    for (const { loss, tokens: own } of beside) {
      auxiliary += ((await loss.readFloats())[0] as number) * (own / tokens);
      loss.dispose();
    }
    if (beside.length > 0 && read[0]) read[0] = { ...read[0], auxiliary };
    await device.synchronize();
    return read;
  };
  const cut = (own: readonly Item[]) => groupBySize(own, sizeOf, microBatchTokens);
  if (!trains) {
    const groups = cut(items);
    const read = (await overGroups(device, groups, (group) => runGroup(group))) ?? [];
    return read.flatMap((terms, i) =>
      terms.map((term) => ({ group: groups[i] as readonly Item[], ...term })),
    );
  }
  const releases = trains.some(({ released }) => released);
  const lockstep = processesOf(device)?.lockstep === true;
  const run = async (own: readonly Item[], passed?: Passed) => {
    const read: ReadTerm<Item, Name, Term, Told>[] = [];
    const groups = cut(own);
    // Gathers of a base that processes share take turns with releases, in one order.
    if (groups.length === 0 && lockstep && releases)
      for (const group of cut(items).slice(0, 1)) await runGroup(group.slice(0, 1), passed);
    if (groups.length > 1 && releases)
      throw new StepTrainError(
        'E_CONFIG',
        `run.zero 2 frees gradients after each micro-batch, and a shard of ${own.reduce((sum, item) => sum + sizeOf(item), 0)} tokens is ` +
          `${groups.length} micro-batches of ${microBatchTokens}: raise micro_batch_tokens, make the optimizer batch smaller, ` +
          'or set run.zero to 1',
      );
    // One micro-batch at a time, so that its memory is freed before the next and the event loop can run.
    for (const [i, group] of groups.entries()) {
      for (const term of await runGroup(group, i === groups.length - 1 ? passed : undefined))
        read.push({ group, ...term });
      passedOn(group.length, sizes(group));
    }
    processesOf(device)?.add(sizes(own));
    return read;
  };
  if (parallel) {
    const fill =
      lockstep && !releases
        ? async () => {
            // Whatever it gives is dropped.
            const first = items.slice(0, 1);
            const turns = turnsOf(items, parallel, (own) => cut(own).length);
            const { rank = 0 } = parallel.cluster ?? {};
            const missing = Math.max(...turns) - (turns[rank] as number);
            for (let turn = 0; turn < missing; turn++) await runGroup(first);
          }
        : undefined;
    return overShards(items, trains, parallel, run, fill);
  }
  for (const parameters of trains) parameters.zeroGrads();
  return run(items);
}

/** Counts items and their tokens. */
function reporter(report: ((part: ProgressPart) => void) | undefined, total: number) {
  let [done, tokens] = [0, 0];
  report?.({ unit: 'row', done, total, tokens });
  return (more: number, moreTokens: number): void => {
    done += more;
    tokens += moreTokens;
    report?.({ unit: 'row', done, total, tokens });
  };
}

function plain<Term extends object>(term: Term): Plain<Term> {
  const scalars = Object.entries(term).filter(
    ([, value]) => typeof value !== 'object' && typeof value !== 'function',
  );
  return Object.fromEntries(scalars) as Plain<Term>;
}

async function readTerm<Name extends string>({ loss, statistics, values }: LossTerm<Name>) {
  const [[value], named, found] = await Promise.all([
    loss.readFloats(),
    statistics ? readStatistics(statistics) : ({} as Readonly<Record<Name, number>>),
    values?.readFloats() ?? new Float32Array(),
  ]);
  for (const tensor of [loss, statistics?.values, values]) tensor?.dispose();
  return { loss: value as number, statistics: named, values: found };
}

/** The metric of the loss that balances experts, without its coefficient; empty where there is none. */
export function balanceOf(terms: readonly { readonly auxiliary?: number }[]): { readonly aux_loss?: number } {
  const found = terms.flatMap(({ auxiliary }) => auxiliary ?? []);
  return found.length > 0 ? { aux_loss: found.reduce((sum, loss) => sum + loss, 0) } : {};
}

/** Sum of the losses. */
export function totalLoss(terms: readonly { readonly loss: number }[]): number {
  return terms.reduce((sum, { loss }) => sum + loss, 0);
}
