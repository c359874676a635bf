// Hostile CSV: tables that are none, of any width and length, give one sentence or their rows, soon, and pollute nothing.
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { csvRows } from '../../src/data/csv-rows.js';
import { fileRows } from '../../src/data/files.js';
import { DataError } from '../../src/files/data-error.js';
import { fileWith, load } from '../data/data-file.js';

async function rows(chunks: Iterable<Buffer | string>) {
  async function* stream() {
    for (const chunk of chunks) yield Buffer.from(chunk as string);
  }
  const all = [];
  for await (const row of csvRows(stream(), 'x.csv')) all.push(row);
  return all;
}

const failure = (chunks: Iterable<Buffer | string>) =>
  rows(chunks).then(
    () => new Error('it was accepted'),
    (reason: Error) => reason,
  );

function* repeated(chunk: string, times: number) {
  for (let i = 0; i < times; i++) yield chunk;
}

describe('a table that is none', () => {
  it.each<[string, () => Iterable<string>, RegExp]>([
    [
      'a header of a million columns',
      () => [`${Array.from({ length: 1e6 }, (_, i) => `c${i}`)}\n`],
      /x\.csv, line 1: the row has more than 100000 cells/,
    ],
    [
      'a header of 90,000 columns, the last of them twice',
      () => [`${Array.from({ length: 9e4 }, (_, i) => `c${i}`)},c1\n`],
      /two columns have the name 'c1'/,
    ],
    ['commas without end', () => repeated(','.repeat(1e6), 100), /more than 100000 cells/],
    [
      'a cell without end',
      () => repeated('x'.repeat(1 << 24), 64),
      /line 1: a cell has more than \d+ characters/,
    ],
    [
      'a quoted cell without end',
      () => ['a,b\n"', ...repeated('x'.repeat(1 << 24), 64)],
      /line 2: the quote that opens here is never closed/,
    ],
    [
      'a quote that is never closed',
      () => ['a,b\n1,"2\n3,4\n'],
      /line 2: the quote that opens here is never closed/,
    ],
    ['a header of nothing', () => [',,,\n1,2,3,4\n'], /column 1 has no name/],
    ['a header of a closed quote', () => ['"a"b,c\n'], /goes on after its closing quote/],
  ])('%s is refused in a sentence', async (_, chunks, sentence) => {
    const error = await failure(chunks());
    expect(error).toBeInstanceOf(DataError);
    expect(error.message).toMatch(sentence);
    expect(error.message.length).toBeLessThan(400);
  });

  it.each<[string, string]>([
    ['nothing', ''],
    ['line breaks alone', '\n\r\n\n'],
    ['a byte order mark alone', '\ufeff'],
    ['a header alone', 'a,b\n'],
  ])('%s has no rows', async (_, text) => {
    expect(await rows([text])).toEqual([]);
  });
});

describe('cells', () => {
  it('with names and JSON of prototypes change no object', async () => {
    const text = '__proto__,constructor,a\n"{""polluted"": 1}",x,"{""__proto__"": {""polluted"": 1}}"\n';
    const [row] = await rows([text]);
    expect(Object.keys(row?.value as object)).toEqual(['__proto__', 'constructor', 'a']);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  it('of formulas, escapes, NUL and lone carriage returns stay what they are', async () => {
    const cells = ['=cmd|calc!A1', '\u001b[2J', 'a\0b', '\u202e', '[not json', '{"half":'];
    const quoted = cells.map((cell) => `"${cell.replaceAll('"', '""')}"`);
    const [row] = await rows([`a,b,c,d,e,f\n${quoted.join(',')}\n`]);
    expect(Object.values(row?.value as object)).toEqual(cells);
  });

  it('of very deep JSON are text or a list, and no crash', async () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    const [row] = await rows([`a\n"${deep}"\n`]);
    expect(row?.value).toBeDefined();
    await expect(load(fileWith('deep.csv', `problem,steps,label\n1,"${deep}",0\n`))).rejects.toThrow(
      DataError,
    );
  });

  it('are read where a million rows are short and one is wrong', async () => {
    const found = await rows(['a,b\n', ...repeated('1,2\n'.repeat(1000), 200), '1\n', '3,4\n']);
    expect(found).toHaveLength(200_002);
    expect(found.filter(({ bad }) => bad !== undefined)).toHaveLength(1);
  });
});

it('a compressed bomb of one line ends at the cell, not in memory', async () => {
  const bomb = gzipSync(Buffer.alloc(300 << 20, 'x'));
  const error = await (async () => {
    for await (const _ of fileRows(fileWith('bomb.csv.gz', bomb)));
  })().then(
    () => new Error('it was accepted'),
    (reason: Error) => reason,
  );
  expect(error).toBeInstanceOf(DataError);
  expect(error.message).toMatch(/bomb\.csv\.gz, line 1: a cell has more than/);
});
