import { afterAll, describe, expect, it } from 'vitest';
import { embedding } from '../../src/ops/embedding.js';
import { packQuantized } from '../../src/ops/gemm.js';
import { isas, onGpu, openTest } from './devices.js';
import { random } from './numbers.js';
import { stored } from './precision.js';
import { blockWeights } from './quantized-weights.js';

describe.each(isas)('embedding on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  const cases = (['f32', 'bf16'] as const).flatMap((weights) =>
    (['f32', 'bf16'] as const).flatMap((output) =>
      [false, true].map((packed) => [weights, output, packed] as const),
    ),
  );

  it.each(cases)('gathers %s rows as %s, packed %s', async (weights, output, packed) => {
    const [V, H] = [70, 37];
    const ids = Int32Array.from({ length: 50 }, (_, t) => (t * 31 + 69) % V);
    const values = random(V * H);
    const plain = device.tensor(values, [V, H], weights);
    const weight = packed ? device.ops.pack_weight({ w: plain, dtype: weights }).y : plain;
    const { y } = device.ops.embedding({ ids: device.tensor(ids), weight, dtype: output });
    expect(y.dtype).toBe(output);
    const table = stored(stored(values, weights), output);
    const expected = Array.from(
      { length: ids.length * H },
      (_, i) => table[ids[Math.floor(i / H)]! * H + (i % H)],
    );
    expect(Array.from(await y.read())).toEqual(expected);
  });

  it.each(['f32', 'bf16'] as const)('gathers from a row on of a quantised table in %s', async (dtype) => {
    const { bytes, format, shape } = blockWeights([70, 256])[0]!;
    const table = { name: 'positions', value: packQuantized(device.tensor(bytes), format, shape) };
    const rows = (ids: number[], first?: number) =>
      embedding(device.tensor(Int32Array.from(ids)), table, dtype, first).read();
    const found = await rows([67, 0, 5], 2);
    expect(found).toEqual(await rows([69, 2, 7]));
    expect(new Set(found).size).toBeGreaterThan(32);
  });

  it.each([
    ['f32', 9, 300, 5],
    ['bf16', 300, 131, 7],
    ['f32', 0, 8, 7],
  ] as const)('adds %s gradients in order of the token (T %i, H %i, V %i)', async (dtype, T, H, V) => {
    const ids = Int32Array.from({ length: T }, (_, t) => (t * t + 3 * t) % V);
    const values = random(T * H, 2).map((v, i) => v * 2 ** (i % 23));
    const before = random(V * H, 3);
    const dweight = device.tensor(before, [V, H]);
    device.ops.embedding_backward({
      dy: device.tensor(values, [T, H], dtype),
      ids: device.tensor(ids),
      dweight,
    });
    // Float sums depend on their order, so equality proves it.
    const expected = Float32Array.from(before);
    stored(values, dtype).forEach((v, i) => {
      expected[ids[Math.floor(i / H)]! * H + (i % H)]! += v;
    });
    expect(Array.from(await dweight.read())).toEqual(Array.from(expected));
  });

  it('is one parallel region per op', async () => {
    const weight = device.tensor(random(400), [10, 40]);
    const ids = device.tensor(Int32Array.from({ length: 100 }, (_, i) => i % 10));
    await device.synchronize();
    const before = device.stats().launches;
    const { y } = device.ops.embedding({ ids, weight, dtype: 'f32' });
    device.ops.embedding_backward({ dy: y, ids, dweight: weight });
    await device.synchronize();
    expect(device.stats().launches - before).toBe(onGpu(isa) ? 3 : 2);
  });

  it('refuses a token outside the vocabulary', async () => {
    for (const op of ['embedding', 'embedding_backward'] as const) {
      const other = openTest(isa);
      const weight = other.tensor(random(40), [10, 4]);
      const ids = other.tensor(Int32Array.of(3, 10));
      if (op === 'embedding') other.ops[op]({ ids, weight, dtype: 'f32' });
      else other.ops[op]({ dy: other.empty([2, 4]), ids, dweight: weight });
      await expect(other.synchronize()).rejects.toThrow(`${op}: ids[1] is 10, outside 0..9`);
      other.dispose();
    }
  });
});
