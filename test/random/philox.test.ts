import { describe, expect, it } from 'vitest';
import { keyOfSeed, PhiloxStream, philox4x32 } from '../../src/random/philox.js';

describe('philox4x32-10', () => {
  it('gives the known answers published with Random123', () => {
    const ones = 0xffffffff;
    expect(philox4x32([0, 0, 0, 0], [0, 0])).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    expect(philox4x32([ones, ones, ones, ones], [ones, ones])).toEqual([
      0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd,
    ]);
    expect(philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0])).toEqual([
      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1,
    ]);
  });

  it('agrees with 64-bit integer arithmetic on arbitrary counters', () => {
    const draw = new PhiloxStream(11, 0, 0);
    for (let i = 0; i < 200; i++) {
      const words = Array.from({ length: 6 }, () => draw.word());
      const [a, b, c, d, k0, k1] = words as [number, number, number, number, number, number];
      expect(philox4x32([a, b, c, d], [k0, k1])).toEqual(bigintPhilox([a, b, c, d], [k0, k1]));
    }
  });

  it('a stream depends only on seed, domain and index', () => {
    const words = (seed: number, domain: number, index: number): number[] => {
      const stream = new PhiloxStream(seed, domain, index);
      return Array.from({ length: 9 }, () => stream.word());
    };
    expect(words(1, 2, 3)).toEqual(words(1, 2, 3));
    const others = [
      words(0, 2, 3),
      words(1, 0, 3),
      words(1, 2, 0),
      words(1 + 2 ** 32, 2, 3),
      words(1, 2, 3 + 2 ** 32),
    ];
    expect(new Set([...others, words(1, 2, 3)].map(String)).size).toBe(6);
    expect(() => keyOfSeed(-1)).toThrow('the seed is -1; expected an integer from 0');
  });

  it('draws every value below n equally often', () => {
    const stream = new PhiloxStream(5, 0, 0);
    const counts = new Array<number>(7).fill(0);
    for (let i = 0; i < 70_000; i++) {
      const value = stream.below(7);
      counts[value] = (counts[value] as number) + 1;
    }
    const chiSquare = counts.reduce((sum, count) => sum + (count - 10_000) ** 2 / 10_000, 0);
    // 99.9th percentile for 6 degrees of freedom.
    expect(chiSquare).toBeLessThan(22.46);
    // Without a second draw a quarter of the 2³² words would wrap around to the first third.
    const third = 2 ** 30;
    const low = Array.from({ length: 30_000 }, () => stream.below(3 * third)).filter(
      (value) => value < third,
    ).length;
    expect(low / 30_000).toBeCloseTo(1 / 3, 1);
    expect(new PhiloxStream(5, 0, 0).uniform()).toBeLessThan(1);
  });
});

function bigintPhilox(counter: readonly number[], key: readonly number[]): number[] {
  const mask = 0xffffffffn;
  let [c0, c1, c2, c3] = counter.map(BigInt) as [bigint, bigint, bigint, bigint];
  let [k0, k1] = key.map(BigInt) as [bigint, bigint];
  for (let round = 0; round < 10; round++) {
    const p0 = 0xd2511f53n * c0;
    const p1 = 0xcd9e8d57n * c2;
    [c0, c1, c2, c3] = [(p1 >> 32n) ^ c1 ^ k0, p1 & mask, (p0 >> 32n) ^ c3 ^ k1, p0 & mask];
    k0 = (k0 + 0x9e3779b9n) & mask;
    k1 = (k1 + 0xbb67ae85n) & mask;
  }
  return [c0, c1, c2, c3].map(Number);
}
