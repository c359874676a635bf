import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fileRows } from '../../src/data/files.js';
import { pythonValue, SHORTENED } from '../../src/data/python-text.js';
import { fileWith, load } from './data-file.js';

const golden = (name: string) => join(import.meta.dirname, '../golden/csv', name);

async function rowsOf(file: string) {
  const found = [];
  for await (const { value } of fileRows(file)) found.push(value);
  return found;
}

describe('lists in CSV', () => {
  it.each(['datasets', 'pandas', 'pandas-arrays', 'pandas-scalars'])('are what %s wrote', async (name) => {
    expect(await rowsOf(golden(`${name}.csv`))).toEqual(
      JSON.parse(readFileSync(golden('rows.json'), 'utf8')),
    );
  });

  it('may hold arrays in objects and in arrays', async () => {
    expect(await rowsOf(golden('nested.csv'))).toEqual([
      JSON.parse(readFileSync(golden('nested.json'), 'utf8')),
    ]);
  });

  it('are refused where NumPy left elements out', async () => {
    await expect(load(golden('shortened.csv'))).rejects.toThrow(
      /shortened\.csv, line 2.*column 'steps' holds a list of which NumPy printed only both ends .*to_parquet/,
    );
  });

  it('are no lists of steps where they are text, which the row says', async () => {
    const file = fileWith('own.csv', 'problem,gold_answer,steps\nWhat?,4,"[""a"" or b]"\n');
    await expect(load(file)).rejects.toThrow(
      /column 'steps' holds the text "\[\\"a\\" or b\]", which is no list in JSON or as Python/,
    );
  });
});

describe('text as Python prints it', () => {
  it.each<[string, unknown]>([
    ["['a', 'b']", ['a', 'b']],
    ["['a' 'b']", ['a', 'b']],
    ["('a', 1)", ['a', 1]],
    ["('a',)", ['a']],
    ['[ 1. nan]', [1, null]],
    [
      '[[1 2]\n [3 4]]',
      [
        [1, 2],
        [3, 4],
      ],
    ],
    ["{'a': array([], dtype=float64), 'b': None}", { a: [], b: null }],
    ['[np.float64(-0.5), np.True_, np.str_("x")]', [-0.5, true, 'x']],
    [String.raw`['\x41\u00e9\U0001f600\'"\\n']`, ['Aé😀\'"\\n']],
    ['[1 2 3 ... 7 8 9]', SHORTENED],
    ['[[1 2 3 ... 7 8 9]\n [1 2 3 ... 7 8 9]]', SHORTENED],
  ])('%s is a value', (text, value) => {
    expect(pythonValue(text)).toEqual(value);
  });

  it.each([
    '[1] apple',
    '[a, b]',
    "['a' 'b', 'c']",
    "['a''b']",
    '[1, 2, ..., 9]',
    '[1 ... 9]',
    '{1, 2}',
    "{'a' 1}",
    "['a'",
    "['a\nb']",
    String.raw`['\q']`,
    '[1 2]]',
    '[datetime.date(2020, 1, 1)]',
    '[inf]',
    '[1 +]',
    '[1,,2]',
    '[,1]',
    '[...]',
    '[x.y]',
    '[1e400]',
  ])('%s is none', (text) => {
    expect(pythonValue(text)).toBeUndefined();
  });

  it('may be nested without end and stays text', () => {
    expect(pythonValue('['.repeat(1e6))).toBeUndefined();
    expect(pythonValue("{'a':".repeat(1e5))).toBeUndefined();
  });
});
