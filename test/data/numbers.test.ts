// Numbers of rows keep their digits and their kind from any file to any file.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { columnsLayout, detectLayout } from '../../src/data/benchmarks/layouts.js';
import { groupColumn, optionalText, type Row, renamed } from '../../src/data/columns.js';
import { fileRows } from '../../src/data/files.js';
import { exactText } from '../../src/files/exact-json.js';
import { fileWith, load } from './data-file.js';

const golden = (name: string) => join(import.meta.dirname, '../golden/parquet-numbers', name);

async function rowsOf(file: string): Promise<Row[]> {
  const found: Row[] = [];
  for await (const { value } of fileRows(file)) found.push(value as Row);
  return found;
}

const written = async (file: string) => (await rowsOf(file)).map(exactText);

describe('numbers of rows', () => {
  it('of Parquet are those that pyarrow wrote', async () => {
    const lines = readFileSync(golden('rows.jsonl'), 'utf8').trim().split('\n');
    expect(await written(golden('numbers.parquet'))).toEqual(lines);
  });

  it.each(['bytes', 'integers'])(
    'of decimals in Parquet have all their digits, stored as %s',
    async (stored) => {
      const rows = JSON.parse(readFileSync(golden('decimals.json'), 'utf8')) as object[];
      const lines = rows.map((row) => JSON.stringify(row).replace(/"(-?[\d.]+)"/g, '$1'));
      expect(await written(golden(`decimals-${stored}.parquet`))).toEqual(lines);
    },
  );

  it('of singles and halves in Parquet are as NumPy prints them', async () => {
    const printed = JSON.parse(readFileSync(golden('floats.json'), 'utf8')) as Record<string, string>[];
    const rows = printed.map(({ single, half, double }) => ({
      single: Number(single),
      half: Number(half),
      double: Number(double),
      list: [Number(single), null],
    }));
    expect((await written(golden('floats.parquet'))).map((row) => JSON.parse(row))).toEqual(rows);
  });

  it('of dates and times in Parquet are as pandas prints them', async () => {
    expect((await written(golden('times.parquet'))).map((row) => JSON.parse(row))).toEqual(
      JSON.parse(readFileSync(golden('times.json'), 'utf8')),
    );
  });

  it('beyond doubles are refused in JSON', async () => {
    const rows: { bad?: { message: string } | undefined }[] = [];
    for await (const row of fileRows(fileWith('a.jsonl', '{"a":1}\n{"a":[-1e400]}\n{"a":"1e400"}\n')))
      rows.push(row);
    expect(rows.map(({ bad }) => bad?.message)).toEqual([
      undefined,
      expect.stringContaining('the number -1e400 is too large'),
      undefined,
    ]);
  });

  it('of JSON lines, a list and values one after another are as they stand there', async () => {
    const [first, second] = ['{"a":12345678901234567890,"b":[2.0,1e5]}', '{"a":-0.0,"b":{"c":0.10}}'];
    expect(await written(fileWith('a.jsonl', `${first}\n${second}\n`))).toEqual([first, second]);
    expect(await written(fileWith('a.json', `[${first}, ${second}]`))).toEqual([first, second]);
    expect(await written(fileWith('b.json', `${first} ${second}`))).toEqual([first, second]);
  });

  it('of lists in CSV are as JSON, Python and NumPy print them', async () => {
    const cells = ['"[12345678901234567890, 2.0]"', "\"{'a': 12345678901234567890, 'b': 2.0}\"", '[1. 0.5]'];
    expect(await written(fileWith('a.csv', `x,y,z\n${cells.join(',')}\n`))).toEqual([
      '{"x":[12345678901234567890,2.0],"y":{"a":12345678901234567890,"b":2.0},"z":[1.0,0.5]}',
    ]);
  });

  it('stay where columns are renamed', async () => {
    const [row] = await rowsOf(fileWith('a.jsonl', '{"q":2.0,"n":1.0}\n'));
    expect(exactText(renamed(row as Row, { question: 'q' }))).toBe('{"n":1.0,"question":2.0}');
  });

  it.each([
    ['1234567890123456789', '1234567890123456789'],
    ['1234567890123456789.0', '1234567890123456789.0'],
    ['0.12345678901234567891', '0.12345678901234567891'],
    ['142.0', '142'],
    ['1.50', '1.5'],
  ])('%s is the text %s as an answer, an id and a group', async (number, text) => {
    const [row] = await rowsOf(fileWith('a.jsonl', `{"problem":"p","answer":${number},"id":${number}}\n`));
    const given = row as Row;
    expect(detectLayout(given)?.read(given)).toEqual({ problem: 'p', answer: text, id: text });
    expect(columnsLayout({ problem: 'problem', answer: 'answer' }).read(given)).toMatchObject({
      answer: text,
    });
    expect([optionalText(given, 'answer'), groupColumn(given, 'answer')]).toEqual([text, text]);
  });

  it('are no labels beyond 1, and the sentence has their digits', async () => {
    const file = fileWith('a.jsonl', '{"prompt":"p","completions":["a"],"labels":[12345678901234567890]}\n');
    await expect(load(file)).rejects.toThrow(/the number 12345678901234567890; expected true, false/);
  });

  it('of calls and tools stay in records, also where they stand in JSON in a text', async () => {
    const call = '{"name":"f","arguments":{"a":2.0,"b":12345678901234567890}}';
    const turns = [
      '{"from":"human","value":"Go."}',
      `{"from":"function_call","value":${JSON.stringify(call)}}`,
      '{"from":"observation","value":"3"}',
      '{"from":"gpt","value":"Three."}',
    ];
    const tools = '[{"type":"function","function":{"name":"f","parameters":{"maximum":10.0}}}]';
    const file = fileWith(
      'a.jsonl',
      `{"conversations":[${turns.join(',')}],"tools":${JSON.stringify(tools)},"chat_template_kwargs":{"x":1.0}}\n`,
    );
    const { records } = await load(file);
    expect(exactText(records[0])).toContain('"arguments":{"a":2.0,"b":12345678901234567890}');
    expect(exactText(records[0])).toContain('"maximum":10.0');
    expect(exactText(records[0])).toContain('"chat_template_kwargs":{"x":1.0}');
  });
});
