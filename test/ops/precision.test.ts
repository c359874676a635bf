// The bounds that the tests of kernels take: derived, wide enough for what hardware may do, and too narrow for a wrong kernel.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { product, transposed } from './gemm-reference.js';
import { maxDifference, random } from './numbers.js';
import { exact, HOPPER, largestPartialSum, stored, truncating, truncationBound } from './precision.js';

describe('the bound of a sum on tensor cores', () => {
  // Of dw of 400 tokens, as in test/cuda/gemm.test.ts.
  const [T, N, K] = [400, 264, 40];
  const [x, dy] = [stored(random(T * K, 1), 'bf16'), stored(random(T * N, 6), 'bf16')];
  const [left, right] = [transposed(dy, T, N), transposed(x, T, K)];
  const bound = truncationBound(T, largestPartialSum(left, right, T));

  it('is above the error that an H100 showed, but not by twenty times', () => {
    const recorded = 1.6257166862487793e-5;
    expect(bound).toBeGreaterThan(recorded);
    expect(bound).toBeLessThan(20 * recorded);
  });

  it('is too narrow for a kernel that drops a product', () => {
    const want = product(left, right, N, K, T, exact);
    for (const dropped of [0, 16, 77, 383, T - 1]) {
      const wrong = (values: readonly number[]) => values.map((value, i) => (i % T === dropped ? 0 : value));
      const got = product(wrong(left), right, N, K, T, exact);
      // In most elements, not only where the product happens to be the largest.
      const missed = got.filter((value, i) => Math.abs(value - want[i]!) <= bound);
      expect(missed.length / got.length, `product ${dropped}`).toBeLessThan(0.02);
      expect(maxDifference(got, want)).toBeGreaterThan(1000 * bound);
    }
  });

  it('holds for any number of products and any spread of exponents, on all tensor cores that are known', () => {
    const bf16 = fc
      .tuple(fc.integer({ min: -255, max: 255 }), fc.integer({ min: -12, max: 12 }))
      .map(([digits, exponent]) => digits * 2 ** (exponent - 8));
    const factors = fc.array(fc.tuple(bf16, bf16), { minLength: 1, maxLength: 200 });
    for (const alignment of [HOPPER, { depth: 8, bits: 1 }, { depth: 4, bits: 0 }])
      fc.assert(
        fc.property(factors, (pairs) => {
          const [a, b] = [pairs.map(([one]) => one), pairs.map(([, other]) => other)];
          const largest = largestPartialSum(a, b, pairs.length);
          const [found] = product(a, b, 1, 1, pairs.length, truncating(alignment)) as [number];
          const [want] = product(a, b, 1, 1, pairs.length, exact) as [number];
          const most = largest === 0 ? 0 : truncationBound(pairs.length, largest, alignment);
          expect(Math.abs(found - want)).toBeLessThanOrEqual(most);
        }),
        { numRuns: 300, seed: 1 },
      );
  });
});
