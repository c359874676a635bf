// `steptrain grade` on small files.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function file(name: string, rows: readonly object[]): string {
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

const ROWS = [
  { prediction: 'so it is $\\boxed{\\frac{1}{2}}$.', answer: '0.5' },
  { prediction: 'The answer is 7.', answer: 8 },
  { prediction: null, answer: '3' },
  { prediction: '2 + 2 = 4\n#### 4', answer: 'They have 4.\n#### 4' },
];

describe('steptrain grade', () => {
  it('prints a table of where answers were found and how many are right', async () => {
    const { code, stdout } = await cli('grade', file('out.jsonl', ROWS));
    expect(code).toBe(0);
    expect(stdout.split('\n').map((line) => line.split(/\s+/).join(' '))).toEqual([
      'answers rows right %',
      'boxed 1 1 100.0',
      'phrase 1 0 0.0',
      'marker 1 1 100.0',
      'none 1 0 0.0',
      'all 4 2 50.0',
      'answers were found boxed: in the last \\boxed{…}; phrase: behind "answer is", "Answer:" or "final answer"; marker: behind the last ####',
    ]);
  });

  it('warns of expected answers in sentences, which no answer equals', async () => {
    const answer = 'Er hat 5 und bekommt 6. 5 + 6 = 11. Die Antwort ist 11.';
    const { stderr } = await cli('grade', file('out.jsonl', [{ prediction: '#### 11', answer }]));
    expect(stderr).toMatch(/^Warning: the expected answers of 1 row are sentences that mark no answer/);
  });

  it('takes no answer from a sample that was cut off', async () => {
    const rows = ['stop', 'length', 'abort'].map((finish_reason) => ({
      ...{ prediction: 'The answer is 7', answer: 7, finish_reason },
    }));
    const { stdout } = await cli('grade', file('out.jsonl', rows), '--json');
    expect(JSON.parse(stdout)).toMatchObject({ rows: 3, correct: 1, unanswered: 2 });
  });

  it('takes no answer from reasoning that never ends, where the prompts opened it', async () => {
    const texts = ['so the answer is 7', 'is it 8?</think>The answer is 7'];
    const rows = file(
      'out.jsonl',
      texts.map((prediction) => ({ prediction, answer: 7 })),
    );
    const counts = async (...options: string[]) =>
      JSON.parse((await cli('grade', rows, '--json', ...options)).stdout);
    expect(await counts()).toMatchObject({ correct: 2, unanswered: 0 });
    expect(await counts('--in-reasoning')).toMatchObject({ correct: 1, unanswered: 1 });
  });

  it('keeps the result of every row, and shows the wrong ones', async () => {
    const output = join(folder, 'graded.jsonl');
    const { code, stdout } = await cli(
      'grade',
      file('out.jsonl', ROWS),
      '--output',
      output,
      '--show',
      'wrong',
    );
    expect(code).toBe(0);
    expect(stdout.split('\n').slice(0, 2)).toEqual([
      '2  wrong  7 (phrase)  expected 8  exact',
      '3  wrong  no answer  expected 3',
    ]);
    const rows = readFileSync(output, 'utf8').trimEnd().split('\n');
    expect(rows.map((row) => JSON.parse(row))).toEqual([
      { row: 1, correct: true, got: '\\frac{1}{2}', expected: '0.5', found: 'boxed', method: 'exact' },
      { row: 2, correct: false, got: '7', expected: '8', found: 'phrase', method: 'exact' },
      { row: 3, correct: false, got: null, expected: '3', found: null, method: null },
      { row: 4, correct: true, got: '4', expected: '4', found: 'marker', method: 'text' },
    ]);
    const again = await cli('grade', file('out.jsonl', ROWS), '--output', output);
    expect(again).toMatchObject({
      code: 1,
      stderr: `${output} is there already; choose another file for --output`,
    });
  });

  it('accepts other columns, a second file and other rules', async () => {
    const completions = file('c.jsonl', [
      { completion: '0.33333' },
      { completion: '5 cm' },
      { completion: 'B, as 3 > 2.' },
    ]);
    const gold = file('gold.jsonl', [{ gold: '1/3' }, { gold: '5' }, { gold: '(B)' }]);
    const columns = [
      'grade',
      completions,
      '--answers',
      gold,
      '--prediction',
      'completion',
      '--answer',
      'gold',
      '--json',
    ];
    expect(JSON.parse((await cli(...columns)).stdout)).toMatchObject({
      rows: 3,
      correct: 2,
      methods: { unit: 1, choice: 1 },
    });
    const other = ['--digits', '5', '--units', 'required', '--expect', 'choice'];
    expect(JSON.parse((await cli(...columns, ...other)).stdout)).toMatchObject({
      correct: 2,
      methods: { rounded: 1, choice: 1 },
    });
  });

  it('reads standard input', async () => {
    const lines = ROWS.map((row) => `${JSON.stringify(row)}\n`).join('');
    const stdin = vi
      .spyOn(process, 'stdin', 'get')
      .mockReturnValue(Readable.from([Buffer.from(lines)]) as never);
    const { code, stdout, stderr } = await cli('grade', '-', '--json');
    stdin.mockRestore();
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).toMatchObject({ rows: 4, correct: 2, unanswered: 1, accuracy: 0.5 });
  });

  it('refuses unusable input in one sentence', async () => {
    const rows = file('out.jsonl', [{ question: 'q', completion: '1', answer: ['1'] }]);
    expect(await cli('grade', rows)).toEqual({
      code: 1,
      stdout: '',
      stderr: `${rows}, line 1: column 'prediction' should hold text or a number, and it is not there; the columns are question, completion, answer; name one with --prediction`,
    });
    expect(await cli('grade', rows, '--prediction', 'completion')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("column 'answer' should hold text or a number, and it holds a list"),
    });
    for (const answer of ['', ' ', null])
      expect(await cli('grade', file('no-answer.jsonl', [{ prediction: '1', answer }]))).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("line 1: column 'answer' holds no expected answer"),
      });
    const more = file('more.jsonl', [{ answer: '1' }, { answer: '2' }]);
    expect(await cli('grade', rows, '--prediction', 'completion', '--answers', more)).toMatchObject({
      code: 1,
      stderr: `${rows} has 1 row and ${more} 2; both must list the same problems in the same order`,
    });
    const first = { id: 0, problem: '1+1', prediction: '2', answer: '2' };
    const second = { id: 1, problem: '2+3', prediction: '2', answer: '2' };
    const [one, other] = [file('one.jsonl', [first, second]), file('other.jsonl', [second, first])];
    expect(await cli('grade', one, '--answers', other)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('has id "0" and'),
    });
    expect(await cli('grade', one, '--answers', file('like.jsonl', [first, second]))).toMatchObject({
      code: 0,
    });
    expect(await cli('grade', file('none.jsonl', []))).toMatchObject({ code: 1 });
    expect(await cli('grade', join(folder, 'nowhere.jsonl'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no such file or directory'),
    });
    const broken = join(folder, 'broken.jsonl');
    writeFileSync(broken, '{"prediction": "1", "answer": "1"}\n{"prediction"\n');
    expect(await cli('grade', broken)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('broken.jsonl, line 2'),
    });
    expect(await cli('grade', rows, '--digits', '0')).toMatchObject({ code: 1 });
    expect(await cli('grade', rows, '--output', 'x.csv')).toMatchObject({ code: 1 });
  });

  it('reads numbers with all their digits', async () => {
    const path = join(folder, 'long.jsonl');
    writeFileSync(
      path,
      '{"prediction":"The answer is 1234567890123456789.","answer":1234567890123456789}\n' +
        '{"prediction":"The answer is 1234567890123456788.","answer":1234567890123456789}\n' +
        '{"prediction":1234567890123456789,"answer":"1234567890123456788"}\n' +
        '{"prediction":"1234567890123456789.25","answer":1234567890123456789.25}\n',
    );
    const output = join(folder, 'graded.jsonl');
    const { code } = await cli('grade', path, '--output', output);
    const rows = readFileSync(output, 'utf8').trim().split('\n');
    expect([code, rows.map((row) => JSON.parse(row).correct)]).toEqual([0, [true, false, false, true]]);
  });
});
