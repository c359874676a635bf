// Stop strings in streamed text, against a search of the whole text.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StopMatcher } from '../../../src/generate/rows/stops.js';

/** The stop that ends first, the longest among those that end together, by a search from every byte. */
function firstStop(text: Buffer, strings: readonly string[]) {
  for (let end = 1; end <= text.length; end++) {
    const ending = strings.filter((string) => {
      const bytes = Buffer.from(string);
      return bytes.length > 0 && bytes.length <= end && text.subarray(end - bytes.length, end).equals(bytes);
    });
    const [string] = ending.sort((a, b) => Buffer.byteLength(b) - Buffer.byteLength(a));
    if (string !== undefined) return { string, begin: end - Buffer.byteLength(string), end };
  }
  return undefined;
}

/** Few letters, so that strings overlap; one has two bytes, one has four. */
const letters = (options: fc.StringConstraints) =>
  fc.string({ ...options, unit: fc.constantFrom('a', 'b', 'é', '𝄞') });

describe('StopMatcher', () => {
  it('finds the same stop as a search of the whole text, for any division into pieces', () => {
    fc.assert(
      fc.property(
        letters({ maxLength: 30 }),
        fc.array(letters({ maxLength: 5 }), { maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 10 }),
        (text, strings, pieces) => {
          const bytes = Buffer.from(text);
          const matcher = new StopMatcher(strings);
          let found: ReturnType<StopMatcher['push']>;
          for (let begin = 0, i = 0; begin < bytes.length; i++) {
            const end = begin + (pieces[i % pieces.length] as number);
            found = matcher.push(bytes.subarray(begin, end));
            expect(found).toEqual(firstStop(bytes.subarray(0, end), strings));
            begin = end;
          }
          expect(found).toEqual(firstStop(bytes, strings));
        },
      ),
      { numRuns: 500 },
    );
  });

  it('holds back exactly what may become a stop', () => {
    fc.assert(
      fc.property(
        letters({ minLength: 1, maxLength: 20 }),
        fc.array(letters({ minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 3 }),
        (text, strings) => {
          const bytes = Buffer.from(text);
          fc.pre(firstStop(bytes, strings) === undefined);
          const matcher = new StopMatcher(strings);
          matcher.push(bytes);
          const endings = Array.from({ length: bytes.length + 1 }, (_, i) => bytes.subarray(i));
          const possible = endings.filter((ending) =>
            strings.some((string) => Buffer.from(string).subarray(0, ending.length).equals(ending)),
          );
          expect(matcher.pending).toBe(Math.max(...possible.map(({ length }) => length)));
        },
      ),
      { numRuns: 500 },
    );
  });

  it('without strings holds back nothing and finds nothing', () => {
    const matcher = new StopMatcher(['']);
    expect([matcher.push(Buffer.from('text')), matcher.pending]).toEqual([undefined, 0]);
  });
});
