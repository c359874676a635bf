import fc from 'fast-check';
import { expect, it } from 'vitest';
import { DistinctNumbers } from '../../src/data/distinct.js';

it('counts distinct numbers as a Set does, also between additions', () => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.integer({ min: -3, max: 5000 }), { maxLength: 3000 })), (rounds) => {
      const counted = new DistinctNumbers();
      const set = new Set<number>();
      for (const round of rounds) {
        for (const value of round) {
          counted.add(value);
          set.add(value);
        }
        expect(counted.count()).toBe(set.size);
      }
    }),
    { numRuns: 30 },
  );
});

it('counts so many that they are looked at in parts', () => {
  const counted = new DistinctNumbers();
  for (let i = 0; i < 900_000; i++) counted.add(((i % 700_001) * 0x9e3779b1) % 2 ** 48);
  expect(counted.count()).toBe(700_001);
  for (let i = 0; i < 900_000; i++) counted.add(i % 3);
  // 0 is one of the first.
  expect(counted.count()).toBe(700_003);
});
