import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { csvRows } from '../../src/data/csv-rows.js';
import { fileRows } from '../../src/data/files.js';
import { fileWith, load } from './data-file.js';

async function rows(content: string | Buffer) {
  const all = [];
  for await (const row of fileRows(fileWith('rows.csv', content))) all.push(row);
  return all;
}

describe('rows of CSV', () => {
  it('are texts by the names of the header, with quotes, commas and line breaks in cells', async () => {
    const text =
      '\uFEFF"problem", answer\r\n"2, or ""two""\nlines?",4\r\n\r\n7,\n[1] apple,"[1, {""a"": true}]"';
    expect(await rows(text)).toEqual([
      { line: 2, row: 1, value: { problem: '2, or "two"\nlines?', answer: '4' } },
      { line: 5, row: 2, value: { problem: '7', answer: null } },
      { line: 6, row: 3, value: { problem: '[1] apple', answer: [1, { a: true }] } },
    ]);
  });

  it('come back as they were written, wherever the bytes are cut', async () => {
    const cell = fc.string({ unit: 'grapheme' }).filter((text) => !/\r|^\s*[[{]/.test(text) && text !== '');
    const table = fc.array(fc.tuple(cell, cell), { minLength: 1 });
    await fc.assert(
      fc.asyncProperty(table, fc.integer({ min: 1, max: 7 }), async (written, size) => {
        const quoted = written.map((row) => row.map((text) => `"${text.replaceAll('"', '""')}"`).join(','));
        const bytes = Buffer.from(`a,b\n${quoted.join('\n')}`);
        async function* cut() {
          for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
        }
        const found = [];
        for await (const { value } of csvRows(cut(), 'x.csv'))
          found.push(Object.values(value as Record<string, string>));
        expect(found).toEqual(written);
      }),
      { numRuns: 100 },
    );
  });

  it('make records, right and wrong in words', async () => {
    const path = fileWith('steps.csv', 'prompt,completion,label\nOne?,1,true\nTwo?,3,False\nThree?,3,1\n');
    const { records } = await load(path);
    expect(records.map(({ problem, outcome }) => [problem, outcome])).toEqual([
      ['One?', 1],
      ['Two?', 0],
      ['Three?', 1],
    ]);
    const bench = fileWith('pb.csv', 'problem,steps,label\nOne?,"[""a"", ""b""]",1\n');
    expect((await load(bench)).records[0]?.steps.map(({ label }) => label)).toEqual([1, 0]);
  });

  it.each<[string, string | Buffer, RegExp]>([
    ['too few cells', 'prompt,completion\nonly\n', /rows\.csv, line 2: the row has 1 cells and the header 2/],
    ['text after a quote', 'prompt,completion\n"a"b,c\n', /line 2: cell 1 goes on after its closing quote/],
    [
      'bytes that are no text',
      Buffer.from('prompt,completion\n\xff,c\n', 'latin1'),
      /line 2: .* not valid UTF-8/,
    ],
    ['lines that end with \\r alone', 'prompt,completion\ra,b\r', /line 1: a carriage return stands without/],
    ['a return in a cell', 'prompt,completion\r\n1\r2,b\r\n', /line 2: a carriage return stands without/],
    ['a return after a quoted cell', 'prompt,completion\n"a"\r,b\n', /line 2: a carriage return stands/],
    ['an open quote', 'prompt,completion\n\na,"b\nc\n', /line 3: the quote that opens here is never closed/],
    ['a name twice', 'prompt, prompt\na,b\n', /line 1: two columns have the name 'prompt'/],
    ['a column without a name', 'prompt,,x\na,b,c\n', /line 1: column 2 has no name/],
    ['columns of no layout', 'colour,size\na,b\n', /line 2: the columns colour, size .* data\.columns/],
    ['an empty cell', 'prompt,completion\na,\n', /line 2: column 'completion'/],
  ])('refuse %s with the place', async (_, content, message) => {
    await expect(load(fileWith('rows.csv', content))).rejects.toThrow(message);
  });

  it('after a bad one are still read', async () => {
    const { records, report } = await load(fileWith('rows.csv', 'prompt,completion\na\nb,c\n'), {
      on_bad_row: 'skip',
    });
    expect(records).toHaveLength(1);
    expect(Object.fromEntries(report.skipped)).toEqual({ wrong_cells: 1 });
  });
});
