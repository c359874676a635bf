import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { call, isas, onGpu, openTest } from './devices.js';
import { random } from './numbers.js';
import { roundBf16 } from './precision.js';

/** Value of IEEE half bits, by its definition. */
const fromHalf = (bits: number): number => {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
};

const sizes = [0, 1, 7, 33, 8192, 20_001];

describe.each(isas)('memory on %s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa, { threads: 2 });
  });
  afterAll(() => device.dispose());

  it.each(sizes)('copies and casts %i elements exactly', async (n) => {
    const values = random(n);
    const x = device.tensor(values, [n]);
    const { y } = device.ops.copy({ x });
    expect(Array.from(await y.read())).toEqual(Array.from(values));
    const half = device.ops.cast({ x, dtype: 'bf16' }).y;
    expect(half.dtype).toBe('bf16');
    const rounded = Array.from(values, roundBf16);
    expect(Array.from(await half.read())).toEqual(rounded);
    expect(Array.from(await device.ops.cast({ x: half, dtype: 'f32' }).y.read())).toEqual(rounded);
    expect(Array.from(await device.ops.copy({ x: half }).y.read())).toEqual(rounded);
  });

  it.each(sizes)('adds, scales and accumulates %i elements', async (n) => {
    const [a, b] = [random(n, 1), random(n, 2)];
    for (const dtype of ['f32', 'bf16'] as const) {
      const round = dtype === 'f32' ? Math.fround : roundBf16;
      const [ra, rb] = [Array.from(a, round), Array.from(b, round)];
      const x = device.tensor(a, [n], dtype);
      const y = device.tensor(b, [n], dtype);
      const { z } = device.ops.add({ x, y });
      expect(Array.from(await z.read())).toEqual(ra.map((v, i) => round(v + (rb[i] as number))));
      const scaled = device.ops.scale({ x, factor: 0.375 }).y;
      expect(Array.from(await scaled.read())).toEqual(ra.map((v) => round(v * 0.375)));
      device.ops.axpy({ y, x, factor: -0.5 });
      expect(Array.from(await y.read())).toEqual(ra.map((v, i) => round((rb[i] as number) - 0.5 * v)));
    }
  });

  it('fills every dtype and refuses values out of range', async () => {
    for (const [dtype, value] of [
      ['f32', -1.5],
      ['bf16', 0.25],
      ['i32', -7],
      ['u8', 200],
    ] as const) {
      const x = device.empty([3, 5], dtype);
      device.ops.fill({ x, value });
      expect(Array.from(await x.read())).toEqual(new Array(15).fill(value));
    }
    const other = openTest(isa);
    other.ops.fill({ x: other.empty([2], 'u8'), value: 256 });
    await expect(other.synchronize()).rejects.toThrow('fill: value 256 does not fit into u8');
    other.dispose();
  });

  it.each([
    [5, 3, 4],
    [1000, 77, 130],
    [4, 0, 9],
  ])('gathers and scatters (T %i, R %i, H %i)', async (T, R, H) => {
    const rows = Int32Array.from({ length: R }, (_, r) => (r * 7 + (r % 3)) % T);
    for (const dtype of ['f32', 'bf16'] as const) {
      const round = dtype === 'f32' ? Math.fround : roundBf16;
      const source = random(T * H);
      const gathered = device.ops.gather_rows({
        x: device.tensor(source, [T, H], dtype),
        rows: device.tensor(rows),
      });
      const expected = Array.from({ length: R * H }, (_, i) =>
        round(source[(rows[Math.floor(i / H)] as number) * H + (i % H)] as number),
      );
      expect(Array.from(await gathered.y.read())).toEqual(expected);

      const values = random(R * H, 3);
      const sums = new Float32Array(T * H);
      for (let i = 0; i < R * H; i++) {
        const at = (rows[Math.floor(i / H)] as number) * H + (i % H);
        sums[at] = (sums[at] as number) + round(values[i] as number);
      }
      const { y } = device.ops.scatter_rows({
        x: device.tensor(values, [R, H], dtype),
        rows: device.tensor(rows),
        T,
      });
      expect(Array.from(await y.read())).toEqual(Array.from(sums, round));
    }
  });

  it('decodes every IEEE half', async () => {
    const halves = Uint16Array.from({ length: 65_536 }, (_, i) => i);
    const x = device.tensor(new Uint8Array(halves.buffer), [131_072]);
    const f32 = await device.ops.decode_f16({ x, rows: 256, cols: 256, dtype: 'f32' }).y.read();
    const bf16 = await device.ops.decode_f16({ x, rows: 256, cols: 256, dtype: 'bf16' }).y.read();
    for (let i = 0; i < 65_536; i++) {
      const expected = fromHalf(i);
      if (!Object.is(f32[i], expected)) expect(`${i}: ${f32[i]}`).toBe(`${i}: ${expected}`);
      const rounded = Number.isFinite(expected) ? roundBf16(expected) : expected;
      if (!Object.is(bf16[i], rounded)) expect(`${i}: ${bf16[i]}`).toBe(`${i}: ${rounded}`);
    }
  });

  it.each(sizes)('finds the largest value and counts non-finite ones of %i', async (n) => {
    const values = random(n);
    if (n > 6) {
      values[3] = Number.NaN;
      values[n - 1] = Number.NEGATIVE_INFINITY;
      values[5] = Number.POSITIVE_INFINITY;
      values[n - 3] = -17;
    }
    for (const dtype of ['f32', 'bf16'] as const) {
      const round = dtype === 'f32' ? Math.fround : roundBf16;
      const largest = values.reduce(
        (max, v) => (Number.isFinite(v) ? Math.max(max, Math.abs(round(v))) : max),
        0,
      );
      const { stats } = device.ops.finite({ x: device.tensor(values, [n], dtype) });
      expect(Array.from(await stats.read())).toEqual([largest, n > 6 ? 3 : 0]);
    }
  });

  it('runs each op as one parallel region', async () => {
    const x = device.tensor(random(40_000), [200, 200]);
    const rows = device.tensor(Int32Array.of(1, 2, 3));
    const bytes = device.tensor(new Uint8Array(8));
    const calls: (() => void)[] = [
      () => device.ops.copy({ x }),
      () => device.ops.cast({ x, dtype: 'bf16' }),
      () => device.ops.fill({ x, value: 1 }),
      () => device.ops.add({ x, y: x }),
      () => device.ops.scale({ x, factor: 2 }),
      () => device.ops.axpy({ y: x, x, factor: 2 }),
      () => device.ops.gather_rows({ x, rows }),
      () => device.ops.scatter_rows({ x: device.empty([3, 4]), rows, T: 9 }),
      () => device.ops.decode_f16({ x: bytes, rows: 2, cols: 2, dtype: 'f32' }),
      () => device.ops.finite({ x }),
    ];
    await device.synchronize();
    const before = device.stats().launches;
    for (const call of calls) call();
    await device.synchronize();
    // On a GPU a scatter clears, links and sums.
    expect(device.stats().launches - before).toBe(calls.length + (onGpu(isa) ? 2 : 0));
  });

  it.each([
    ['gather_rows', () => ({}), 'gather_rows: rows[1] is 9, outside 0..3'],
    ['scatter_rows', () => ({ T: 4 }), 'scatter_rows: rows[1] is 9, outside 0..3'],
  ] as const)('%s refuses a row out of range', async (op, scalars, message) => {
    const other = openTest(isa);
    const x = other.tensor(random(op === 'gather_rows' ? 8 : 4), [op === 'gather_rows' ? 4 : 2, 2]);
    call(other, op, { x, rows: other.tensor(Int32Array.of(0, 9)), ...scalars() });
    await expect(other.synchronize()).rejects.toThrow(message);
    other.dispose();
  });

  it('refuses halves that do not fill the shape', async () => {
    const other = openTest(isa);
    other.ops.decode_f16({ x: other.tensor(new Uint8Array(6)), rows: 2, cols: 2, dtype: 'f32' });
    await expect(other.synchronize()).rejects.toThrow('decode_f16: x has 6 bytes, but 2 x 2 halves need 8');
    other.dispose();
  });
});
