import { expect, it } from 'vitest';
import { Recent } from '../../src/native/recent.js';

it('makes a value once, and again where it was not asked for lately', () => {
  const made: string[] = [];
  const recent = new Recent<string, string>(8, (value) => value.length);
  const ask = (...keys: readonly string[]): string => {
    for (const key of keys) {
      const value = recent.get(key, () => {
        made.push(key);
        return key.repeat(2);
      });
      expect(value).toBe(key.repeat(2));
    }
    return made.splice(0).join('');
  };
  expect(ask('a', 'b', 'a', 'b')).toBe('ab');
  // A new half begins with c; a comes along, and b is forgotten as the next one begins.
  expect(ask('c', 'a', 'd', 'a', 'c', 'b')).toBe('cdb');
  // A value larger than the limit is kept while nothing comes after it.
  expect(ask('long'.repeat(9), 'long'.repeat(9))).toBe('long'.repeat(9));
});
