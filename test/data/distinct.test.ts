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
