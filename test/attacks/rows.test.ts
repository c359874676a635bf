/** Hostile data files: what is no row is counted or refused with its place, and no file takes the process's memory. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { fileRows } from '../../src/data/files.js';
import { jsonRows } from '../../src/data/json-rows.js';
import { loadRecords } from '../../src/data/load.js';
import { DataError } from '../../src/files/data-error.js';
import { exactText } from '../../src/files/exact-json.js';
import { compiled } from '../e2e/program.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const GOOD = { problem: 'p', steps: [{ text: 's', label: 1 }] };
const step = (change: object) => JSON.stringify({ ...GOOD, steps: [{ text: 's', label: 1, ...change }] });

function file(content: string | Uint8Array, name = 'rows.jsonl'): string {
  const path = join(temporaryDirectory(), name);
  writeFileSync(path, content);
  return path;
}

async function records(path: string) {
  const { records: read, report } = loadRecords(path, { source: 'auto' });
  const found = [];
  for await (const record of read) found.push(record);
  return { found, report };
}

async function refusal(path: string): Promise<string> {
  const error = await records(path).then(
    ({ found }) => new Error(`it gave ${found.length} records`),
    (reason: Error) => reason,
  );
  expect(error).toBeInstanceOf(DataError);
  expect(error.message).toContain(dirname(path));
  expect(error.message.length).toBeLessThan(2000);
  return error.message;
}

/** A hundred bytes between the marks, with the length of the footer as bytes. */
const parquet = (mark: string, footer: string, fill = 0) =>
  Buffer.concat([Buffer.from(mark), Buffer.alloc(100, fill), Buffer.from(footer, 'hex'), Buffer.from(mark)]);

describe('a hostile row', () => {
  it.each<[string, string | Uint8Array, RegExp]>([
    ['nothing', 'null\n', /line 1: the row is null; expected an object/],
    ['a number', '5\n', /line 1: the row is the number 5/],
    ['a page of HTML', '<!DOCTYPE html><html></html>\n', /line 1: the row is not JSON/],
    [
      'a pointer of LFS',
      'version https://git-lfs.github.com/spec/v1\noid sha256:abc\n',
      /line 1: the row is not JSON/,
    ],
    ['zeros', Buffer.alloc(1000), /line 1: the row is not JSON/],
    [
      'UTF-16',
      Buffer.from(`\ufeff${JSON.stringify(GOOD)}`, 'utf16le'),
      /line 1: the row is not valid UTF-8 text|line 1: the row is not JSON/,
    ],
    ['two byte-order marks', `\ufeff\ufeff${JSON.stringify(GOOD)}`, /line 1: the row is not JSON/],
    [
      'carriage returns alone',
      `${JSON.stringify(GOOD)}\r${JSON.stringify(GOOD)}\r`,
      /line 1: the row is not JSON/,
    ],
    ['brackets without end', '['.repeat(1e6), /the list of rows is not closed/],
    ['objects without end', `{"problem":${'{"a":'.repeat(1e6)}`, /line 1: the row is not JSON/],
    [
      'a deep problem',
      `{"problem":${'['.repeat(2e5)}${']'.repeat(2e5)},"steps":[{"text":"s","label":1}]}`,
      /line 1: /,
    ],
    ['deep steps', `{"problem":"p","steps":${'['.repeat(2e5)}${']'.repeat(2e5)}}`, /line 1: /],
    [
      'a prototype alone',
      `{"__proto__":${JSON.stringify(GOOD)}}`,
      /line 1: the columns? .*of no known layout/,
    ],
    [
      'infinity as a label',
      '{"problem":"p","steps":[{"text":"s","label":1e999}]}',
      /the number 1e999 is too large/,
    ],
    ['half a label', step({ label: 0.5 }), /label/],
    ['a name of the prototype as a label', step({ label: 'constructor' }), /label/],
    ['an object as a label', step({ label: {} }), /label/],
    ['a number as a text', step({ text: 5 }), /text/],
    ['an empty text', step({ text: ' ' }), /empty/],
    [
      'a text of five million characters',
      step({ text: 'x'.repeat(5e6) }),
      /'text' of step 1 has 5,000,000 characters, more than any model reads; expected at most 4,194,304/,
    ],
    ['half a surrogate pair', step({ text: '\ud800' }), /surrogate/],
    ['nothing as a step', '{"problem":"p","steps":[null]}', /step/],
    ['steps like a list', '{"problem":"p","steps":{"0":{"text":"s","label":1},"length":1}}', /steps/],
    [
      'a prototype in a step',
      '{"problem":"p","steps":[{"text":"s","label":1,"__proto__":{"label":0}}]}',
      /unknown key '__proto__'/,
    ],
    ['no steps', '{"problem":"p","steps":[]}', /steps/],
    ['an empty problem', JSON.stringify({ ...GOOD, problem: '' }), /problem/],
    ['a list as the problem', JSON.stringify({ ...GOOD, problem: ['p'] }), /problem/],
  ])('that is or has %s is refused', async (_, content, message) => {
    expect(await refusal(file(content))).toMatch(message);
  });

  it('that has a column twice is refused', async () => {
    const twice = '{"problem":"a","problem":"b","steps":[{"text":"s","label":1}]}\n';
    expect(await refusal(file(twice))).toMatch(/line 1: the key "problem" stands twice in one object/);
  });

  it('may have a hundred thousand steps, and a NUL in a text', async () => {
    const steps = Array.from({ length: 100_000 }, (_, i) => ({ text: `s\0${i}`, label: i % 2 }));
    const { found } = await records(file(JSON.stringify({ ...GOOD, steps })));
    expect(found[0]?.steps.length).toBe(100_000);
    expect(found[0]?.steps[7]?.text).toBe('s\0' + '7');
  });

  it('after a gigabyte of blank lines in a small archive keeps its line', async () => {
    const blank = Buffer.alloc(64 << 20, '\n');
    const path = file(
      gzipSync(Buffer.concat([blank, Buffer.from(`${JSON.stringify(GOOD)}\n5\n`)]), { level: 1 }),
      'rows.jsonl.gz',
    );
    expect(await refusal(path)).toMatch(`line ${(64 << 20) + 2}: the row is the number 5`);
  });
});

test.skipIf(!compiled)(
  'a line of 30 MB takes a few times its length of memory (needs dist/: npm run build)',
  () => {
    const size = 30e6;
    const path = file(
      JSON.stringify({ problem: 'P?', steps: [{ text: 'x'.repeat(size), label: 1 }] }),
      'long.jsonl',
    );
    const { status, stdout, stderr } = spawnSync(process.execPath, [
      '--input-type=module',
      '--eval',
      `import { loadRecords } from ${JSON.stringify(new URL('../../dist/entries/index.js', import.meta.url).href)};
     const bytes = () => process.resourceUsage().maxRSS * 1024;
     const before = bytes();
     for await (const _ of loadRecords(${JSON.stringify(path)}, { on_bad_row: 'skip' }).records);
     console.log(bytes() - before);`,
    ]);
    expect([status, String(stderr)]).toEqual([0, '']);
    // Bytes, their text and its value; a reader that copies what came so far takes 34 times.
    expect(Number(stdout) / size).toBeLessThan(10);
  },
);

describe('a hostile data file', () => {
  it.each<[string, string, (path: string) => void, RegExp]>([
    [
      'an archive of one row of 512 MiB',
      'a.jsonl.gz',
      (path) => writeFileSync(path, gzipSync(Buffer.alloc(512 << 20, 'a'), { level: 1 })),
      /one row is longer than 256 MiB/,
    ],
    [
      'an endless device',
      'a.jsonl',
      (path) => symlinkSync('/dev/zero', path),
      /one row is longer than 256 MiB/,
    ],
    [
      'an archive without an end',
      'a.jsonl.gz',
      (path) => writeFileSync(path, gzipSync(Buffer.alloc(1 << 20)).subarray(0, 500)),
      /damaged or cut short/,
    ],
    [
      'an archive in an archive',
      'a.jsonl.gz',
      (path) => writeFileSync(path, gzipSync(gzipSync('{}'))),
      /not valid UTF-8|not JSON/,
    ],
    ['a directory', 'a.jsonl', (path) => mkdirSync(path), /holds no data file/],
    ['a link to itself', 'a.jsonl', (path) => symlinkSync(path, path), /cannot be read/],
    [
      'a link to nothing',
      'a.jsonl',
      (path) => symlinkSync('/nowhere/a.jsonl', path),
      /there is no such file/,
    ],
    [
      'a Parquet of four bytes',
      'a.parquet',
      (path) => writeFileSync(path, 'PAR1'),
      /cannot be read as parquet/,
    ],
    [
      'a Parquet with a footer of 2 GiB',
      'a.parquet',
      (path) => writeFileSync(path, parquet('PAR1', 'ffffff7f')),
      /cannot be read as parquet/,
    ],
    [
      'a Parquet with a footer of noise',
      'a.parquet',
      (path) => writeFileSync(path, parquet('PAR1', '64000000', 0x19)),
      /parquet/,
    ],
    [
      'an encrypted Parquet',
      'a.parquet',
      (path) => writeFileSync(path, parquet('PARE', '0a000000')),
      /cannot be read as parquet/,
    ],
    ['an empty Parquet', 'a.parquet', (path) => writeFileSync(path, ''), /cannot be read as parquet/],
    [
      'a program',
      'a.jsonl',
      (path) => writeFileSync(path, execFileSync('head', ['-c', '9000', process.execPath])),
      /not valid UTF-8|not JSON/,
    ],
  ])('that is %s is refused', async (_, name, make, message) => {
    const path = join(temporaryDirectory(), name);
    make(path);
    expect(await refusal(path)).toMatch(message);
  });

  it('beside a link to its own folder is read once', async () => {
    const path = file(`${JSON.stringify(GOOD)}\n`);
    symlinkSync('.', join(dirname(path), 'loop'));
    expect((await records(dirname(path))).found.length).toBe(1);
  });

  it('of any text gives rows, bad rows or a sentence, however its bytes are cut', async () => {
    const pieces = fc.constantFrom(
      ...'{ } [ ] " , : 1 null \\ a 1e999 \u2028'.split(' '),
      '\n',
      ' ',
      '{"a":1}',
      '\ufeff',
      'é',
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(pieces, { maxLength: 24 }),
        fc.boolean(),
        fc.integer({ min: 1, max: 9 }),
        async (parts, lines, size) => {
          const bytes = Buffer.from(parts.join(''));
          const read = async (cut: number) => {
            async function* chunks() {
              for (let i = 0; i < bytes.length; i += cut) yield bytes.subarray(i, i + cut);
            }
            const rows: unknown[] = [];
            try {
              for await (const { bad, ...row } of jsonRows(chunks(), 'f', { lines }))
                rows.push(bad === undefined ? row : { ...row, bad: bad.message });
            } catch (error) {
              expect(error).toBeInstanceOf(DataError);
              rows.push((error as Error).message);
            }
            return rows;
          };
          expect(await read(size)).toEqual(await read(bytes.length));
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('of lines gives as many rows as lines with text, each with its line', async () => {
    const line = fc.oneof(
      fc.json({ maxDepth: 1 }).map((text) => text.replaceAll('\n', ' ')),
      fc.constantFrom('', ' ', '{', 'x'),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(line, { maxLength: 12 }), async (lines) => {
        if (/^\s*\[/.test(lines.join('\n'))) return;
        const found = [];
        for await (const { line: at, bad, value } of fileRows(file(lines.join('\n'))))
          found.push({
            at,
            bad: bad !== undefined,
            value: bad === undefined ? (JSON.parse(exactText(value)) as unknown) : undefined,
          });
        const expected = lines.flatMap((text, i) => {
          if (text.trim() === '') return [];
          try {
            return [{ at: i + 1, bad: false, value: JSON.parse(text) as unknown }];
          } catch {
            return [{ at: i + 1, bad: true, value: undefined }];
          }
        });
        expect(found).toEqual(expected);
      }),
      { numRuns: 200 },
    );
  });
});
