import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { fileRows } from '../../src/data/files.js';
import { loadRecords, recordsOf } from '../../src/data/load.js';
import { DataError } from '../../src/files/data-error.js';
import { loggingTo } from '../../src/terminal/log.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { fileWith, load } from './data-file.js';

const files = fileURLToPath(new URL('files', import.meta.url));
const good = { prompt: 'P?', completions: ['a', 'b'], labels: [true, false] };
const line = JSON.stringify(good);

describe('rows in memory', () => {
  it('are read as those of files, and what is left out is said', async () => {
    const rated = (more: object) => ({
      question: { problem: 'P?' },
      label: { steps: [{ completions: [{ text: 'a', rating: 1 }], chosen_completion: 0 }], ...more },
    });
    const annotated = { ...good, 'steps.responses': [['wrong', 'right']] };
    const rows = [rated({}), rated({ finish_reason: 'give_up' }), { ...annotated, tools: [{ name: 'f' }] }];
    const lines: string[] = [];
    const records = await loggingTo(
      (text) => lines.push(text),
      () => recordsOf('evaluate', rows),
    );
    expect(records).toHaveLength(2);
    expect(lines.join('\n')).toContain('evaluate: rows left out: finish_reason_give_up 1');
    expect(lines.join('\n')).toContain('evaluate: rows have tools (1), which is not read');
    expect(lines.join('\n')).toContain(
      'evaluate: rows have verdicts in steps.responses (1), which are not read',
    );
  });
});

describe('loadRecords', () => {
  it('reads the same records from every kind of file', async () => {
    const pretty = JSON.stringify([good, good, good], null, 2);
    const lines = `${line}\n\n${line}\r\n${line}`;
    const contents: Record<string, string | Buffer> = {
      'lines.jsonl': lines,
      'lines.jsonl.gz': gzipSync(lines),
      'lines.ndjson': `${lines}\n`,
      'lines.json': lines,
      'bom.jsonl': `\uFEFF${lines}`,
      'array.json': pretty,
      'array.json.gz': gzipSync(pretty),
      'array.jsonl': `  ${JSON.stringify([good, good, good])}`,
      'objects.json': [good, good, good].map((row) => JSON.stringify(row, null, 2)).join('\n'),
    };
    for (const [name, content] of Object.entries(contents)) {
      const { records, report } = await load(fileWith(name, content));
      expect(report.rows, name).toBe(3);
      for (const record of records) {
        expect({ problem: record.problem, steps: record.steps }).toEqual({
          problem: 'P?',
          steps: [
            { text: 'a', label: 1, kind: 'normal' },
            { text: 'b', label: 0, kind: 'normal' },
          ],
        });
      }
    }
  });

  it('gives each record the value of the column to group by', async () => {
    const lines = ['easy', 3, true, null].map((level) => JSON.stringify({ ...good, level })).join('\n');
    const { records } = await load(fileWith('rows.jsonl', lines), { group_by: 'level' });
    expect(records.map(({ group }) => group)).toEqual(['easy', '3', 'true', '(none)']);
    // A converted record keeps it.
    const again = await load(fileWith('records.jsonl', JSON.stringify(records[0])));
    expect(again.records[0]?.group).toBe('easy');
    await expect(load(fileWith('rows.jsonl', line), { group_by: 'level' })).rejects.toThrow(
      /line 1: column 'level' to group by is missing; the columns are prompt, completions, labels/,
    );
    await expect(load(fileWith('rows.jsonl', line), { group_by: 'labels' })).rejects.toThrow(
      /column 'labels' to group by holds a list of 2; expected text/,
    );
  });

  it('gives each record its file, line and row', async () => {
    const path = fileWith('rows.json', `[\n${line},\n\n${line}]`);
    const { records } = await load(path);
    expect(records.map((record) => record.provenance)).toEqual([
      { file: path, line: 2, row: 1 },
      { file: path, line: 4, row: 2 },
    ]);
  });

  it('reads a directory with subdirectories in order, each file in its layout, and ignores other files', async () => {
    const directory = temporaryDirectory();
    mkdirSync(join(directory, 'b'));
    writeFileSync(join(directory, 'b', 'two.jsonl'), line);
    writeFileSync(join(directory, 'c.json'), JSON.stringify([{ problem: 'Q', steps: ['x'], label: -1 }]));
    writeFileSync(join(directory, 'a.jsonl.gz'), gzipSync(line));
    writeFileSync(join(directory, 'README.md'), '#');
    writeFileSync(join(directory, '.hidden.jsonl'), 'x');
    const { records, report } = await load(directory);
    expect(report.files).toEqual(
      ['a.jsonl.gz', 'b/two.jsonl', 'c.json'].map((name) => join(directory, name)),
    );
    expect(records.map((record) => record.problem)).toEqual(['P?', 'P?', 'Q']);
  });

  it('reads links, and files that match a pattern', async () => {
    const directory = temporaryDirectory();
    mkdirSync(join(directory, 'blobs'));
    mkdirSync(join(directory, 'a+b'));
    for (const name of ['train-00000-of-00002', 'train-00001-of-00002', 'other', 'trainxjsonl']) {
      writeFileSync(join(directory, 'blobs', name), line);
      symlinkSync(`../blobs/${name}`, join(directory, 'a+b', `${name}.jsonl`));
    }
    const names = async (path: string) =>
      (await load(join(directory, path))).report.files.map((file) => file.slice(directory.length + 1));
    expect(await names('a+b')).toHaveLength(4);
    expect(await names('a+b/train-*-of-00002.jsonl')).toEqual([
      'a+b/train-00000-of-00002.jsonl',
      'a+b/train-00001-of-00002.jsonl',
    ]);
    expect(await names('a+b/*.jsonl')).toHaveLength(4);
    await expect(names('a+b/dev*.jsonl')).rejects.toThrow(/dev\*\.jsonl: no data file fits this pattern/);
    await expect(names('nowhere/*.jsonl')).rejects.toThrow(/nowhere: there is no such file or directory/);
  });

  it('reads parquet with the usual compressions, several row groups and lists in columns', async () => {
    for (const codec of ['snappy', 'gzip', 'brotli', 'zstd', 'lz4', 'polars', 'duckdb']) {
      const { records } = await load(join(files, `stepwise-${codec}.parquet`));
      expect(records).toHaveLength(7);
      expect(records[5]).toMatchObject({
        problem: 'Problem 5?',
        steps: [0, 1, 2].map((k) => ({ text: `Step ${k} of 5.`, label: k === 2 ? 0 : 1 })),
        provenance: { row: 6 },
      });
    }
  });

  it('names the readable compressions of parquet where rows cannot be decoded', async () => {
    const bytes = readFileSync(join(files, 'stepwise-zstd.parquet'));
    const frame = bytes.indexOf(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]));
    bytes.fill(0, frame, frame + 4);
    await expect(load(fileWith('damaged.parquet', bytes))).rejects.toThrow(
      /damaged\.parquet: rows 1 to 3 cannot be decoded \(.*\); write the file anew, with pages of version 1 and zstd, snappy/,
    );
  });

  it.each<[string, string, RegExp]>([
    ['data set', 'dataset_info.json', /save_to_disk.*saved\.to_parquet\('.*saved\.parquet'\)"/],
    [
      'dictionary of data sets',
      'dataset_dict.json',
      /\[part\.to_parquet\(f'.*saved-parquet\/\{name\}\.parquet'\) for name, part in saved\.items\(\)\]"/,
    ],
  ])('names the command for a %s that was saved as Arrow files', async (_, mark, sentence) => {
    const folder = join(dirname(fileWith(mark, '{}')), 'saved');
    mkdirSync(join(folder, 'train'), { recursive: true });
    writeFileSync(join(folder, mark), '{}');
    writeFileSync(join(folder, 'train', 'data-00000-of-00001.arrow'), '');
    writeFileSync(join(folder, 'train', 'dataset_info.json'), '{}');
    await expect(load(folder)).rejects.toThrow(sentence);
  });

  it('stops at a bad row with its file and line, what was found and what to do', async () => {
    const cases: [string, RegExp][] = [
      ['{"prompt": "P", "completions": ["a"]', /the row is not JSON \(.*\)/],
      [
        '{"prompt": "P", "completions": ["a"], "labels": [1, 0]}',
        /labels: 2, completions: 1; expected a label for each/,
      ],
      [
        '{"prompt": "P", "completions": ["a"], "labels": ["yes"]}',
        /the label of completion 1 is the text "yes"; expected true, false, 1, 0 or null/,
      ],
      ['{"prompt": "P", "completions": [" "], "labels": [1]}', /completion 1 is empty; expected text/],
      [
        '{"prompt": 7, "completions": ["a"], "labels": [1]}',
        /column 'prompt' holds the number 7; expected text/,
      ],
      ['{"completions": ["a"], "labels": [1]}', /column 'prompt' is missing; expected text/],
      [
        '{"prompt": "P", "completions": "a", "labels": [1]}',
        /column 'completions' holds the text "a"; expected a list/,
      ],
      ['{"prompt": "P", "completions": [], "labels": []}', /column 'completions' is an empty list/],
      ['{"prompt": "P\\ud800", "completions": ["a"], "labels": [1]}', /holds half of a surrogate pair/],
      ['[1, 2]', /the row is a list of 2; expected an object/],
    ];
    for (const [bad, message] of cases) {
      const path = fileWith('rows.jsonl', `${line}\n${bad}\n${line}\n`);
      const failure = await load(path).catch((error: unknown) => error);
      expect(failure, bad).toBeInstanceOf(DataError);
      expect((failure as Error).message, bad).toMatch(message);
      expect((failure as Error).message).toContain(`${path}, line 2: `);
      expect((failure as Error).message).toMatch(
        /correct the row, or skip such rows: on_bad_row: skip, of a command --set data\.on_bad_row=skip$/,
      );
    }
  });

  it('skips bad rows on request and counts them by reason', async () => {
    const path = fileWith('rows.jsonl', [line, '{', '{"prompt": "P"}', '7', line, '\xff'].join('\n'));
    const { records, report } = await load(path, { on_bad_row: 'skip' });
    expect(records).toHaveLength(2);
    expect(report).toMatchObject({ rows: 6, records: 2 });
    expect(Object.fromEntries(report.skipped)).toEqual({ invalid_json: 2, missing_column: 1, wrong_type: 1 });
    expect(report.firstBadRow).toContain(`${path}, line 2: the row is not JSON`);
  });

  it('finds text that is not UTF-8', async () => {
    const path = fileWith(
      'rows.jsonl',
      Buffer.concat([Buffer.from('{"prompt": "'), Buffer.from([0xff]), Buffer.from('"}')]),
    );
    await expect(load(path)).rejects.toThrow(/line 1: the row is not valid UTF-8 text/);
  });

  it('refuses columns of no known layout in a short sentence, which says what to do', async () => {
    const refused = (row: Record<string, unknown>) =>
      load(fileWith('rows.jsonl', JSON.stringify(row)), { on_bad_row: 'skip' }).then(
        () => '',
        (error: Error) => error.message,
      );
    const colour = await refused({ colour: 'x', answer: 'y' });
    expect(colour).toMatch(
      /line 1: the columns colour, answer are of no known layout; expected \{"question": "…", "steps": \["…"\], "labels": \[1, 0\]\};/,
    );
    expect(colour).toContain('--set data.columns.question=NAME');
    // Columns that look like rows of one's own are named.
    expect(await refused({ id: 7, task: 'x', lines: ['y', 'z'], marks: [1, false] })).toContain(
      '--set data.columns.question=task --set data.columns.steps=lines --set data.columns.labels=marks;',
    );
    expect(await refused({ question: 'x', steps: ['y'], ok: [1] })).toContain(
      'by --set data.columns.labels=ok;',
    );
    const wide = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`column${i}`, 'x'.repeat(5000)]));
    expect((await refused(wide)).length).toBeLessThan(500);
  });

  it('leaves out what Prodigy says was rejected or passed over, and counts it', async () => {
    const rows = ['accept', 'reject', 'ignore'].map((answer) => ({ text: answer, answer, _task_hash: 1 }));
    const { records, report } = await load(
      fileWith(
        'rows.jsonl',
        [...rows, { text: 'own', answer: 'reject' }].map((row) => JSON.stringify(row)).join('\n'),
      ),
    );
    expect(records.map(({ steps }) => steps[0]?.text)).toEqual(['accept', 'own']);
    expect(Object.fromEntries(report.skipped)).toEqual({ prodigy_reject: 1, prodigy_ignore: 1 });
  });

  it('reads a named source even if the first row lacks a column', async () => {
    const path = fileWith('rows.jsonl', `{"prompt": "P"}\n${line}`);
    const { records } = await load(path, { source: 'stepwise', on_bad_row: 'skip' });
    expect(records).toHaveLength(1);
  });

  it('says what is wrong with a file that cannot be read', async () => {
    const cases: [string, string | Buffer, RegExp][] = [
      ['a.jsonl.gz', 'plain text', /is not gzip data although its name ends in \.gz/],
      [
        'b.jsonl.gz',
        gzipSync(`${line}\n`.repeat(2000)).subarray(0, 60),
        /the gzip data is damaged or cut short/,
      ],
      [
        'c.json',
        `[${line},${line.slice(0, 20)}`,
        /the list of rows is not closed; the file is cut short after row 1/,
      ],
      ['d.json', `[${line}]\n7`, /line 2: there is more text after the end of the list/],
      ['e.tsv', 'a,b', /cannot tell the format from the name; expected one of \.jsonl/],
      ['f.parquet', 'PAR1', /cannot be read as parquet/],
    ];
    for (const [name, content, message] of cases) {
      const path = fileWith(name, content);
      await expect(load(path, { on_bad_row: 'skip' }), name).rejects.toThrow(message);
      await expect(load(path, { on_bad_row: 'skip' }), name).rejects.toThrow(path);
    }
    await expect(load('/nowhere/x.jsonl')).rejects.toThrow(
      '/nowhere/x.jsonl: there is no such file or directory',
    );
    await expect(load(temporaryDirectory())).rejects.toThrow(/the directory holds no data file/);
    const run = temporaryDirectory();
    for (const name of ['config.yaml', 'metrics.jsonl']) writeFileSync(join(run, name), '{}');
    await expect(load(run)).rejects.toThrow(`${run}: is a run or an adapter, no data; name a data file`);
  });

  it('reads values that are split anywhere between the chunks of a stream', async () => {
    const rows = Array.from({ length: 4000 }, (_, i) => ({
      ...good,
      prompt: `P"\\{[${'é'.repeat(i % 50)}]}, ${i}`,
    }));
    for (const content of [JSON.stringify(rows), rows.map((row) => JSON.stringify(row)).join('\n')]) {
      const { records } = await load(fileWith('rows.json', content));
      expect(records.map((record) => record.problem)).toEqual(rows.map((row) => row.prompt));
    }
  });

  it('needs the same memory for any number of rows, and reads concatenated gzip files', async () => {
    const filler = JSON.stringify({ ...good, prompt: 'x'.repeat(20_000) });
    const part = gzipSync(`${filler},\n`.repeat(500), { level: 1 });
    const path = fileWith(
      'big.json.gz',
      Buffer.concat([gzipSync('['), ...Array<Buffer>(16).fill(part), gzipSync(`${line}]`)]),
    );
    const before = process.memoryUsage().arrayBuffers;
    let peak = 0;
    let n = 0;
    for await (const _ of loadRecords(path).records) {
      if (++n % 100 === 0) peak = Math.max(peak, process.memoryUsage().arrayBuffers);
    }
    expect(n).toBe(8001);
    // The file unpacks to 160 MB.
    expect(peak - before).toBeLessThan(50 * 2 ** 20);
  });
});

const parquet = sharedPath('data/parquet/gsm8k_test.parquet');
const jsonl = sharedPath('data/gsm8k/test.jsonl');
describe.skipIf(parquet === undefined || jsonl === undefined)(
  'a real parquet file (needs the shared data)',
  () => {
    it('has the rows of the same data in JSONL', async () => {
      const rows = async (path: string, question: (row: never) => string): Promise<string[]> => {
        const questions: string[] = [];
        for await (const { value } of fileRows(path)) questions.push(question(value as never));
        return questions;
      };
      const fromParquet = await rows(
        parquet ?? '',
        (row: { extra_info: { question: string } }) => row.extra_info.question,
      );
      expect(fromParquet).toHaveLength(1319);
      expect(fromParquet).toEqual(await rows(jsonl ?? '', (row: { question: string }) => row.question));
    });
  },
);
