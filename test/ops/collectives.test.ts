// The sum of what processes have sent, in the order that is given: the bits of adding floats one by one, on every instruction set.
import { describe, expect, it } from 'vitest';
import { addFloats, additions, addTree } from '../../src/cluster/shards.js';
import { isas, openTest } from './devices.js';

const row = (of: number, n: number) =>
  Float32Array.from({ length: n }, (_, i) => Math.sin(of * 97 + i * 31) * 10 ** ((of + i) % 6));

describe.each(isas)('sum_slices on %s', (isa) => {
  it.each([
    [1, 1],
    [2, 17],
    [4, 512],
    [7, 1025],
    [32, 3000],
  ])('adds %i shards of %i elements as their tree', async (shards, n) => {
    const device = openTest(isa);
    const { pairs, root, rows } = additions(shards, shards);
    expect(rows).toBe(1);
    const values = Array.from({ length: shards }, (_, first) => ({ first, count: 1, values: row(first, n) }));
    const x = device.tensor(Float32Array.from(values.flatMap((each) => [...each.values])), [shards, n]);
    const order = device.tensor(Int32Array.from(pairs.flat()), [pairs.length, 2]);
    const { y } = device.ops.sum_slices({ x, pairs: order, root });
    expect(await y.readFloats()).toEqual(addTree(values, addFloats));
    device.dispose();
  });

  it('refuses rows that are not there, and leaves an empty slice empty', async () => {
    const device = openTest(isa);
    const { y } = device.ops.sum_slices({
      x: device.zeros([2, 0]),
      pairs: device.tensor(Int32Array.of(0, 1), [1, 2]),
      root: 0,
    });
    expect(await y.readFloats()).toEqual(new Float32Array());
    const pairs = device.tensor(Int32Array.of(0, 2), [1, 2]);
    device.ops.sum_slices({ x: device.zeros([2, 4]), pairs, root: 0 });
    await expect(device.synchronize()).rejects.toMatchObject({
      code: 'E_RANGE',
      message: expect.stringMatching(/^sum_slices: /),
    });
    device.dispose();
  });
});

it('a process without a shard adds nothing', () => {
  expect(additions(1, 3)).toEqual({ pairs: [], root: 2, rows: 1, counts: [0, 0, 1] });
  expect(additions(5, 2)).toMatchObject({ rows: 2 });
});
