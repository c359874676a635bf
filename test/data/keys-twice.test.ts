// A key that stands twice in an object of a row, of which JSON.parse has the last alone.
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { fileRows } from '../../src/data/files.js';
import { keyTwice, parseExact } from '../../src/files/exact-json.js';
import { fileWith } from './data-file.js';

const found = (text: string) => keyTwice(text, parseExact(text));

it.each([
  ['{"label": 1, "label": 0}', 'label'],
  ['{"steps": [{"text": "a", "label": 1 , "label" :0}]}', 'label'],
  ['{"a": {"b": 1}, "b": 2, "c": {"b": 3, "b": 3}}', 'b'],
  ['{"a": 1, "\\u0061": 2}', 'a'],
  ['{"x": "\\"y\\": 1", "x": 2}', 'x'],
  ['{"__proto__": 1, "__proto__": 2}', '__proto__'],
])('is found in %s', (text, key) => {
  expect(found(text)).toBe(key);
});

it.each([
  '{"a": {"b": 1}, "b": {"b": 2}}',
  '[{"a": 1}, {"a": 2}]',
  '{"text": "{\\"a\\": 1, \\"a\\": 2}", "a": 3}',
  '{"text": "\\\\", "a": "b\\":"}',
  '{"a" : 1, "b"\n: 2}',
  '"a: b"',
  '{}',
])('is not found in %s', (text) => {
  expect(found(text)).toBeUndefined();
});

it('makes a bad row of its line', async () => {
  const file = fileWith('rows.jsonl', '{"a": 1}\n{"a": 1, "a": 2}\n');
  const rows = [];
  for await (const { line, bad } of fileRows(file)) rows.push([line, bad?.message]);
  expect(rows).toEqual([
    [1, undefined],
    [2, 'the key "a" stands twice in one object'],
  ]);
});

it.each([
  ['twice', 'completion'],
  ['twice-inside', 'text'],
])('makes no row of a Parquet file: %s', async (name, column) => {
  const rows = fileRows(join(import.meta.dirname, `../golden/parquet-numbers/${name}.parquet`));
  await expect(rows.next()).rejects.toThrow(`${name}.parquet: two columns have the name '${column}'`);
});
