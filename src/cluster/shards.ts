/**
 * An optimizer batch in shards, and the sum of their gradients as a binary tree over their numbers: shard 2i with 2i +
 * 1, then pairs of pairs. The sum has the same bits for any number of processes.
 */
import { invalid } from '../native/errors.js';

/** Shards `first` … `first + count − 1`, an aligned run: `count` is a power of two that divides `first`. */
interface ShardRun {
  readonly first: number;
  readonly count: number;
}

/** The tree's value over a run. */
export interface SumOf<Values> extends ShardRun {
  readonly values: Values;
}

export type ShardSum = SumOf<Float32Array>;

/** Shards of process `rank`: whole runs of equal length where `size` divides them, else the first ones have one more. */
export function shardsOf(
  shards: number,
  rank: number,
  size: number,
): { readonly begin: number; readonly end: number } {
  return { begin: Math.floor((rank * shards) / size), end: Math.floor(((rank + 1) * shards) / size) };
}

/** Items of shard `shard`: runs of equal number, the first ones longer by one where they do not come out even. */
export function itemsOf<Item>(items: readonly Item[], shard: number, shards: number): readonly Item[] {
  const [each, rest] = [Math.floor(items.length / shards), items.length % shards];
  const begin = shard * each + Math.min(shard, rest);
  return items.slice(begin, begin + each + (shard < rest ? 1 : 0));
}

/** Adds neighbours as far as the tree allows. @param add may change its left argument, and returns the sum */
export function joinNeighbours<Values>(
  sums: readonly SumOf<Values>[],
  add: (left: Values, right: Values) => Values,
): SumOf<Values>[] {
  const done: SumOf<Values>[] = [];
  for (const sum of [...sums].sort((a, b) => a.first - b.first)) {
    done.push(sum);
    for (;;) {
      const [left, right] = done.slice(-2) as [SumOf<Values>, SumOf<Values> | undefined];
      if (!right || left.count !== right.count || left.first + left.count !== right.first) break;
      if (left.first % (2 * left.count) !== 0) break;
      const values = add(left.values, right.values);
      done.splice(-2, 2, { first: left.first, count: 2 * left.count, values });
    }
  }
  return done;
}

/** The whole tree; a node without a right neighbour is passed on as it is. */
export function addTree<Values>(
  sums: readonly SumOf<Values>[],
  add: (left: Values, right: Values) => Values,
): Values {
  const runs = joinNeighbours(sums, add);
  const gap = runs.findIndex(
    ({ first }, i) =>
      first !== (i === 0 ? 0 : (runs[i - 1] as ShardRun).first + (runs[i - 1] as ShardRun).count),
  );
  if (gap >= 0 || runs.length === 0)
    throw invalid(
      `the shards of a sum are not whole: ${runs.map(({ first, count }) => `${first}+${count}`).join(', ')}`,
    );
  // The remaining runs get smaller from left to right: the tree's right edge.
  return runs.map(({ values }) => values).reduceRight((right, left) => add(left, right));
}

/** The runs that process `rank` is left with, once it has added neighbours. */
function runsOf(shards: number, rank: number, size: number): readonly ShardRun[] {
  const { begin, end } = shardsOf(shards, rank, size);
  const own = Array.from({ length: end - begin }, (_, i) => ({ first: begin + i, count: 1, values: 0 }));
  return joinNeighbours(own, () => 0);
}

/** Max sums over earlier shards that a process holds together with the gradient of the current shard. */
export function sumsHeld(shards: number, size: number): number {
  let most = 0;
  for (let rank = 0; rank < size; rank++) {
    const { begin, end } = shardsOf(shards, rank, size);
    let held: SumOf<number>[] = [];
    for (let first = begin; first < end - 1; first++) {
      most = Math.max(most, held.length + 1);
      held = joinNeighbours([...held, { first, count: 1, values: 0 }], () => 0);
    }
  }
  return most;
}

export interface Additions {
  readonly pairs: readonly (readonly [into: number, other: number])[];
  /** The row that has the sum in the end. */
  readonly root: number;
  readonly rows: number;
  /** Number of rows of each rank. */
  readonly counts: readonly number[];
}

/**
 * The additions of the tree over the runs that all processes have left, in their order: `rows` runs of each process;
 * run i of rank r is in row i · size + r, where i counts up to the most that one has.
 */
export function additions(shards: number, size: number): Additions {
  const runs = Array.from({ length: size }, (_, rank) => runsOf(shards, rank, size));
  const pairs: (readonly [number, number])[] = [];
  const root = addTree(
    runs.flatMap((own, rank) => own.map((run, i) => ({ ...run, values: i * size + rank }))),
    (into, other) => {
      pairs.push([into, other]);
      return into;
    },
  );
  const counts = runs.map(({ length }) => length);
  return { pairs, root, rows: Math.max(...counts), counts };
}

/** Into the left one. */
export function addFloats(into: Float32Array, other: Float32Array): Float32Array {
  for (let i = 0; i < into.length; i++) into[i] = (into[i] as number) + (other[i] as number);
  return into;
}
