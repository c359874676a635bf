import fc from 'fast-check';
import { expect, it } from 'vitest';
import { exactText, isWrittenFloat, parseExact } from '../../src/files/exact-json.js';

it.each([
  '{"a":2.0,"b":[12345678901234567890,-9007199254740993,1e5,0.10,-0.0,1E+2],"c":"2.0"}',
  '[9007199254740991,{"x":{"y":1.00}},0.1000000000000000055]',
  '{"__proto__":2.0,"a":1}',
])('%s is written as it was read', (text) => {
  const value = parseExact(text);
  expect(exactText(value)).toBe(text);
});

it('refuses a number that no double holds', () => {
  expect(() => parseExact('[1e400]')).toThrow('the number 1e400 is too large for a double');
});

it('keeps numbers as JavaScript has them wherever it writes them alike', () => {
  expect(parseExact('[2.0,3,1e5]')).toEqual([2, 3, 100000]);
  expect(parseExact('12345678901234567890')).toBe(12345678901234567890n);
});

it('copies what was written with its object, and takes what was changed', () => {
  const row = parseExact('{"a":2.0,"b":5.0}') as { a: number; b: number };
  expect(exactText({ ...row, b: 7, score: 0.5 })).toBe('{"a":2.0,"b":7,"score":0.5}');
  expect(isWrittenFloat({ ...row }, 'a')).toBe(true);
});

it('takes the last of a name that occurs twice', () => {
  expect(exactText(parseExact('{"a":2.0,"a":2}'))).toBe('{"a":2}');
});

it('reads and writes any JSON as JSON.parse and JSON.stringify do', () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      expect(exactText(parseExact(`[1.0,${text}]`))).toBe(`[1.0,${exactText(parseExact(text))}]`);
      expect(JSON.parse(exactText(parseExact(`[1.0,${text}]`)))).toEqual([1, JSON.parse(text)]);
    }),
  );
});
