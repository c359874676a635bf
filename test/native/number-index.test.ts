import fc from 'fast-check';
import { expect, it } from 'vitest';
import { NumberIndex } from '../../src/native/number-index.js';

it('numbers distinct numbers as a Map does, those of 48 bits and many alike in their low bits too', () => {
  const number = fc.oneof(
    fc.integer({ min: 0, max: 3000 }),
    fc.maxSafeNat().map((n) => n % 2 ** 48),
    fc.nat(2000).map((n) => n * 2 ** 36),
  );
  fc.assert(
    fc.property(fc.array(number, { maxLength: 3000 }), fc.array(number), (added, asked) => {
      const numbers = new NumberIndex();
      const map = new Map<number, number>();
      for (const one of added) {
        if (!map.has(one)) map.set(one, map.size);
        expect(numbers.add(one)).toBe(map.get(one));
      }
      expect(numbers.size).toBe(map.size);
      for (const one of [...added, ...asked]) expect(numbers.indexOf(one)).toBe(map.get(one) ?? -1);
    }),
    { numRuns: 50 },
  );
});
