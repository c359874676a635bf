import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  bf16ToF32,
  countInexact,
  f16ToF32,
  f32ToBf16,
  f32ToF16,
  fromF32,
  toF32,
} from '../../src/weights/convert.js';

// Digests are of the same values converted by PyTorch 2.13; NaN is replaced by 0 where its payload is the converter's choice.
const digest = (array: Uint16Array | Float32Array) =>
  createHash('sha256')
    .update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength))
    .digest('hex');
const withoutNaN = (values: Float32Array) => values.map((value) => (Number.isNaN(value) ? 0 : value));
const everyPattern = Uint16Array.from({ length: 65536 }, (_, index) => index);
const patterns = (of: (index: number) => number) =>
  withoutNaN(new Float32Array(Uint32Array.from({ length: 200_000 }, (_, index) => of(index)).buffer));
const scattered = patterns((index) => Number((BigInt(index) * 2654435761n) & 0xffffffffn));
const aroundHalf = patterns((index) => index * Math.floor(0x50000000 / 200_000) + 0x30000000);

describe('conversions agree with PyTorch', () => {
  it('f16 to f32, every pattern', () => {
    expect(digest(withoutNaN(f16ToF32(everyPattern)))).toBe(
      'faa6d965574036872b0d39a42d1f8bee361d5be92b1e718155a69556a5abacdd',
    );
  });

  it('bf16 to f32, every pattern', () => {
    expect(digest(bf16ToF32(everyPattern))).toBe(
      '9207d7eb28680a098c73dbe536d1ff7b94311dc417b9a385e0af6660683e93ca',
    );
  });

  it('f32 to bf16', () => {
    expect(digest(f32ToBf16(scattered))).toBe(
      '12a2b042570eb12ee971a99197e74ee53522d8707adf127786ed29e2e0967060',
    );
    expect(digest(f32ToBf16(aroundHalf))).toBe(
      '0460f259bd3e4c3b2db7fb7dcb0738220632c981396ad0ad0ae4e45717e742a9',
    );
  });

  it('f32 to f16', () => {
    expect(digest(f32ToF16(scattered))).toBe(
      '1e32e46330e936b2ac03bb28c5cb4dfe6e9283e864242dc0e6e720fbed2510bf',
    );
    expect(digest(f32ToF16(aroundHalf))).toBe(
      '00a2820fa1abab77d53a0ed18cb736eb1aa1219b17447f7dfd747f9a516bd9fd',
    );
  });
});

describe('conversions', () => {
  it('return every 16-bit pattern that is a number', () => {
    const numbers = everyPattern.filter((bits) => (bits & 0x7c00) !== 0x7c00 || (bits & 0x3ff) === 0);
    expect(digest(f32ToF16(f16ToF32(numbers)))).toBe(digest(numbers));
    const wide = everyPattern.filter((bits) => (bits & 0x7f80) !== 0x7f80 || (bits & 0x7f) === 0);
    expect(digest(f32ToBf16(bf16ToF32(wide)))).toBe(digest(wide));
  });

  it('keep a NaN and its sign, even one whose payload is only in the lost bits', () => {
    const nans = new Float32Array(new Uint32Array([0x7f800001, 0xff800001, 0x7fffffff, 0xffc00000]).buffer);
    expect([...f32ToBf16(nans)]).toEqual([0x7fc0, 0xffc0, 0x7fff, 0xffc0]);
    expect([...f32ToF16(nans)]).toEqual([0x7e00, 0xfe00, 0x7fff, 0xfe00]);
    expect([...f16ToF32(new Uint16Array([0x7c01, 0xfe00]))]).toEqual([Number.NaN, Number.NaN]);
  });

  it('round ties to even and overflow to infinity', () => {
    expect([...bf16ToF32(f32ToBf16(new Float32Array([1 + 2 ** -8, 1 + 3 * 2 ** -8, 3.4e38])))]).toEqual([
      1,
      1 + 2 ** -6,
      Number.POSITIVE_INFINITY,
    ]);
    expect([
      ...f16ToF32(f32ToF16(new Float32Array([65519, 65520, -65520, 2 ** -25, 2 ** -25 + 2 ** -40]))),
    ]).toEqual([65504, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, 2 ** -24]);
  });

  it('to bytes and back return the values', () => {
    const values = new Float32Array([1, -0.5, 3.140625]);
    for (const dtype of ['F32', 'BF16', 'F16'] as const) {
      expect([...toF32(fromF32(values, dtype), dtype)]).toEqual([...values]);
    }
  });

  it('count the values that a type cannot hold', () => {
    const values = new Float32Array([1, 1.001, 1e-30, 70000, Number.NaN, Number.POSITIVE_INFINITY]);
    expect([countInexact(values, 'F32'), countInexact(values, 'BF16'), countInexact(values, 'F16')]).toEqual([
      0, 3, 3,
    ]);
  });
});
