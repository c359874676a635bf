// Values among processes keep the bits of their numbers, and what answers otherwise each time is asked once.
import { expect, it, vi } from 'vitest';
import { exchange, foundOnce } from '../../src/cluster/exchange.js';
import { fellows } from './fellows.js';

it('values come by rank, with the bits that JSON would lose', async () => {
  const values = [-0, Number.NaN, Number.POSITIVE_INFINITY, 5e-324, 0.1 + 0.2];
  const found = await Promise.all(
    fellows(2).map((cluster) =>
      exchange(cluster, { rank: cluster.rank, values, floats: Float32Array.from(values), none: undefined }),
    ),
  );
  expect(found[0]).toEqual(found[1]);
  expect(found[0]!.map(({ rank }) => rank)).toEqual([0, 1]);
  for (const each of found[0]!) {
    expect(each.values.map((value) => Object.is(value, -0))).toEqual([true, false, false, false, false]);
    expect(each.values).toEqual(values);
    expect(each.floats).toEqual(Float32Array.from(values));
  }
});

it('rank 0 alone asks, and all have its answer', async () => {
  const ask = vi.fn(async () => Math.random());
  const found = await Promise.all(fellows(3).map((cluster) => foundOnce(cluster, ask)));
  expect(ask).toHaveBeenCalledTimes(1);
  expect(new Set(found).size).toBe(1);
  expect(await foundOnce(undefined, async () => 7)).toBe(7);
});
