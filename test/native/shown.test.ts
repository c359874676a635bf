import { expect, test } from 'vitest';
import { clipped, shown } from '../../src/native/shown.js';

test.each([
  [undefined, 'nothing'],
  [null, 'null'],
  [-0.5, '-0.5'],
  [Number.NaN, 'NaN'],
  [10n, '10'],
  ['a "b"\n', String.raw`"a \"b\"\n"`],
  [[1, 'x', [2, 3], [[4]]], '[1,"x",[2,3],[a list of 1]]'],
  [{ a: 1, b: { c: [] } }, '{"a":1,"b":{"c":a list of 0}}'],
  [{ constructor: 1 }, '{"constructor":1}'],
  [Object.create(null), '{}'],
  [new Float32Array(4e6), 'a Float32Array of 4000000'],
  [new Map(), 'a Map'],
  [() => 1, 'a function'],
] as const)('%o is shown as %s', (value, text) => {
  expect(shown(value)).toBe(text);
});

test('whatever is long is shown by its beginning, and read no further', () => {
  const list = Array.from({ length: 1e6 }, (_, i) => i);
  expect(shown(list)).toBe('[0,1,2,3,4,5,…]');
  const wide = Object.fromEntries(list.slice(0, 1000).map((i) => [`key ${i}`, i]));
  for (const value of [
    wide,
    'x'.repeat(1e6),
    list.map(() => 'y'.repeat(100)),
    { [`k${'k'.repeat(1e6)}`]: 1 },
  ])
    expect(shown(value).length).toBeLessThanOrEqual(60);
  const tower: unknown[] = [];
  tower.push(tower, tower);
  expect(shown(tower)).toBe('[[a list of 2,a list of 2],[a list of 2,a list of 2]]');
  expect(clipped('abcdef', 4)).toBe('abc…');
});
