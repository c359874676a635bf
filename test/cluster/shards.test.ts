// The tree over shards: the same bits whoever adds what.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addFloats,
  addTree,
  itemsOf,
  joinNeighbours,
  type ShardSum,
  shardsOf,
} from '../../src/cluster/shards.js';

const random = (seed: number) =>
  Float32Array.from({ length: 7 }, (_, i) => Math.sin(seed * 97 + i * 31) * 10 ** ((seed + i) % 6));
const leaves = (shards: number): ShardSum[] =>
  Array.from({ length: shards }, (_, first) => ({ first, count: 1, values: random(first) }));

/** By its definition: neighbours of each level, one without a right neighbour passed on. */
function tree(values: readonly Float32Array[]): Float32Array {
  if (values.length === 1) return values[0] as Float32Array;
  const next: Float32Array[] = [];
  for (let i = 0; i < values.length; i += 2) {
    const [left, right] = [values[i] as Float32Array, values[i + 1]];
    next.push(right ? left.map((value, j) => value + (right[j] as number)) : left);
  }
  return tree(next);
}

describe('the sum of shards', () => {
  it('is the tree, for every number of shards and processes', () => {
    for (let shards = 1; shards <= 17; shards++)
      for (let size = 1; size <= 9; size++) {
        const all = Array.from({ length: size }, (_, rank) => {
          const { begin, end } = shardsOf(shards, rank, size);
          return joinNeighbours(leaves(shards).slice(begin, end), addFloats);
        });
        expect(addTree(all.flat(), addFloats), `${shards} shards, ${size} processes`).toEqual(
          tree(leaves(shards).map(({ values }) => values)),
        );
      }
  });

  it('differs from adding one after the other, which is why the order is fixed', () => {
    const inOrder = leaves(8).reduce(
      (sum, { values }) => sum.map((value, i) => value + (values[i] as number)),
      new Float32Array(7),
    );
    expect(addTree(leaves(8), addFloats)).not.toEqual(inOrder);
  });

  it('refuses shards that are missing', () => {
    expect(() => addTree(leaves(4).slice(1), addFloats)).toThrow(
      'the shards of a sum are not whole: 1+1, 2+2',
    );
    expect(() => addTree([], addFloats)).toThrow('not whole');
  });
});

it('every item is in one shard, in order, and every shard in one process', () => {
  fc.assert(
    fc.property(
      fc.nat(40),
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 1, max: 6 }),
      (count, shards, size) => {
        const items = Array.from({ length: count }, (_, i) => i);
        expect(Array.from({ length: shards }, (_, shard) => itemsOf(items, shard, shards)).flat()).toEqual(
          items,
        );
        const owned = Array.from({ length: size }, (_, rank) => shardsOf(shards, rank, size));
        expect(owned[0]!.begin).toBe(0);
        expect(owned.at(-1)!.end).toBe(shards);
        expect(owned.slice(1).map(({ begin }) => begin)).toEqual(owned.slice(0, -1).map(({ end }) => end));
      },
    ),
  );
});
