import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

const POSITIONS = 50;

function tables(half: number): { cos: Float32Array; sin: Float32Array } {
  const cos = new Float32Array(POSITIONS * half);
  const sin = new Float32Array(POSITIONS * half);
  for (let p = 0; p < POSITIONS; p++) {
    for (let e = 0; e < half; e++) {
      cos[p * half + e] = Math.cos(p * 10 ** (-e / half));
      sin[p * half + e] = Math.sin(p * 10 ** (-e / half));
    }
  }
  return { cos, sin };
}

/** `x * cos + rotate_half(x) * sin` of transformers, on whole heads. */
function reference(
  x: Float32Array,
  positions: Int32Array,
  heads: number,
  size: number,
  inverse: boolean,
  { store }: Precision,
): number[] {
  const half = size / 2;
  const { cos, sin } = tables(half);
  return Array.from(x, (value, i) => {
    const d = i % size;
    const row = (positions[Math.floor(i / (heads * size))] as number) * half + (d % half);
    const rotated = d < half ? -(x[i + half] as number) : (x[i - half] as number);
    const s = (inverse ? -1 : 1) * (sin[row] as number);
    return store(store(value * (cos[row] as number)) + store(rotated * s));
  });
}

describe.each(isas)('rope on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  function rotate(
    on: Device,
    x: Float32Array,
    positions: Int32Array,
    heads: number,
    size: number,
    dtype: 'f32' | 'bf16',
    inverse = false,
  ): Promise<Float32Array> {
    const { cos, sin } = tables(size / 2);
    const { y } = on.ops.rope({
      x: on.tensor(x, [positions.length, heads, size], dtype),
      cos: on.tensor(cos, [POSITIONS, size / 2]),
      sin: on.tensor(sin, [POSITIONS, size / 2]),
      positions: on.tensor(positions),
      inverse,
    });
    return y.readFloats();
  }

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    it.each([
      [1, 1, 2],
      [37, 3, 64],
      [5, 14, 6],
      [20, 2, 128],
      [3, 2, 54],
    ])('rotates %d tokens, %d heads of %d as transformers does, and back', async (tokens, heads, size) => {
      const x = stored(random(tokens * heads * size), dtype);
      const positions = Int32Array.from({ length: tokens }, (_, t) => (t * 7) % POSITIONS);
      for (const inverse of [false, true]) {
        const want = reference(x, positions, heads, size, inverse, exact);
        const low = reference(x, positions, heads, size, inverse, naive(dtype));
        const got = await rotate(device, x, positions, heads, size, dtype, inverse);
        expect(maxDifference(got, want)).toBeLessThanOrEqual(2 * maxDifference(low, want));
      }
    });

    it.each([
      [20, 4],
      [64, 8],
      [24, 9],
    ])(
      'turns the first elements of a head of %d by tables of width %d, and keeps the others',
      async (size, half) => {
        const [tokens, heads] = [7, 3];
        const x = stored(random(tokens * heads * size), dtype);
        const positions = Int32Array.from({ length: tokens }, (_, t) => (t * 7) % POSITIONS);
        const firsts = x.filter((_, i) => i % size < 2 * half);
        const { cos, sin } = tables(half);
        for (const inverse of [false, true]) {
          const turned = await rotate(device, firsts, positions, heads, 2 * half, dtype, inverse);
          const want = x.map((value, i) =>
            i % size < 2 * half ? (turned[Math.floor(i / size) * 2 * half + (i % size)] as number) : value,
          );
          const given = device.tensor(x, [tokens, heads, size], dtype);
          const inputs = {
            x: given,
            cos: device.tensor(cos, [POSITIONS, half]),
            sin: device.tensor(sin, [POSITIONS, half]),
            positions: device.tensor(positions),
            inverse,
            partial: true,
          };
          expect(await device.ops.rope(inputs).y.readFloats()).toEqual(want);
          device.ops.rope({ ...inputs, y: given });
          expect(await given.readFloats()).toEqual(want);
        }
      },
    );

    it('can write over its input', async () => {
      const positions = Int32Array.of(3, 9, 0, 49);
      const values = random(4 * 2 * 64);
      const { cos, sin } = tables(32);
      const x = device.tensor(values, [4, 2, 64], dtype);
      device.ops.rope({
        x,
        cos: device.tensor(cos, [POSITIONS, 32]),
        sin: device.tensor(sin, [POSITIONS, 32]),
        positions: device.tensor(positions),
        y: x,
      });
      expect(await x.readFloats()).toEqual(await rotate(device, values, positions, 2, 64, dtype));
    });
  });

  it('gives a token the same bits in any batch and at any thread count', async () => {
    const positions = Int32Array.from({ length: 40 }, (_, t) => t);
    const x = random(40 * 3 * 20);
    const all = await rotate(device, x, positions, 3, 20, 'f32');
    const one = openTest(isa, { threads: 1 });
    expect(await rotate(one, x, positions, 3, 20, 'f32')).toEqual(all);
    const alone = await rotate(one, x.slice(33 * 60, 34 * 60), Int32Array.of(33), 3, 20, 'f32');
    expect(alone).toEqual(all.slice(33 * 60, 34 * 60));
    one.dispose();
  });

  it('accepts 0 tokens, in one launch', async () => {
    const before = device.stats().launches;
    const y = await rotate(device, new Float32Array(0), new Int32Array(0), 2, 8, 'f32');
    expect(y).toHaveLength(0);
    expect(device.stats().launches - before).toBe(onGpu(isa) ? 0 : 1);
  });

  it.each([
    [-1, 'rope: positions[1] is -1, outside 0..49'],
    [50, 'rope: positions[1] is 50, outside 0..49'],
  ])('refuses position %d', async (position, message) => {
    const other = openTest(isa);
    await expect(rotate(other, random(16), Int32Array.of(0, position), 1, 8, 'f32')).rejects.toThrow(message);
    other.dispose();
  });

  it('refuses tables of another width', async () => {
    const other = openTest(isa);
    other.ops.rope({
      x: other.tensor(random(12), [2, 1, 6]),
      cos: other.tensor(random(4), [2, 2]),
      sin: other.tensor(random(4), [2, 2]),
      positions: other.tensor(Int32Array.of(0, 1)),
    });
    await expect(other.synchronize()).rejects.toThrow('rope: head size 6 needs tables of width 3');
    other.dispose();
  });
});
