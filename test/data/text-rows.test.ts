import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { loadProblems } from '../../src/data/benchmarks/load.js';
import { dataFiles } from '../../src/data/files.js';
import { loadRecords } from '../../src/data/load.js';
import { textRows } from '../../src/data/text-rows.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

async function collected<T>(values: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const value of values) all.push(value);
  return all;
}

async function rows(text: string | Buffer, bytes = 7) {
  const all = Buffer.from(text);
  const chunks = Array.from({ length: Math.ceil(all.length / bytes) }, (_, i) =>
    all.subarray(i * bytes, (i + 1) * bytes),
  );
  return collected(textRows(Readable.from(chunks), 'x.txt'));
}

describe('text of the Mathematics Dataset', () => {
  it('is questions and answers line by line', async () => {
    expect(await rows('Solve 24 = 6*c for c.\n4\r\nÄndere 1?\n-2')).toEqual([
      { line: 1, row: 1, value: { question: 'Solve 24 = 6*c for c.', answer: '4' } },
      { line: 3, row: 2, value: { question: 'Ändere 1?', answer: '-2' } },
    ]);
    expect(await rows('')).toEqual([]);
    expect(await rows('\n\n')).toEqual([]);
  });

  it('is refused where a question has no answer, a line has no end, or bytes are no text', async () => {
    await expect(rows('Two?\n2\nThree?\n')).rejects.toThrow(
      /x\.txt, line 3: the last question has no answer/,
    );
    await expect(rows('x'.repeat(2_000_000), 1 << 16)).rejects.toThrow(/lines of at most 1048576 characters/);
    await expect(rows(Buffer.from([0x61, 0xff, 0x0a]))).rejects.toThrow(/is not UTF-8 text/);
  });
});

describe('text of AMPS', () => {
  it('has a problem and its answers, each behind its mark', async () => {
    const text =
      'Problem:\nFind $x$:\n$x = 2 + 2$\nAnswer:\n$4$\nAnswer:\nAdd.\nSo \\boxed{4}\nProblem:\n1?\nAnswer:\n$1$\n';
    expect(await rows(text)).toEqual([
      { line: 1, row: 1, value: { question: 'Find $x$:\n$x = 2 + 2$', answer: '$4$' } },
      { line: 1, row: 2, value: { question: 'Find $x$:\n$x = 2 + 2$', solution: 'Add.\nSo \\boxed{4}' } },
      { line: 9, row: 3, value: { question: '1?', answer: '$1$' } },
    ]);
  });

  it('a problem without an answer is a bad row, not none', async () => {
    const text = 'Problem:\n1?\nProblem:\n2?\nAnswer:\n2\nProblem:\n3?\n';
    const found = await rows(text);
    expect(found.map(({ line, row, value, bad }) => [line, row, value ?? bad?.reason])).toEqual([
      [1, 1, 'no_answer'],
      [3, 2, { question: '2?', answer: '2' }],
      [7, 3, 'no_answer'],
    ]);
  });

  it('is read from a folder, beside which text about the data counts for nothing', async () => {
    const folder = temporaryDirectory();
    mkdirSync(join(folder, 'algebra'));
    writeFileSync(join(folder, 'README.txt'), 'About this.');
    writeFileSync(join(folder, 'algebra', '1.txt'), 'Problem:\n2 + 2?\nAnswer:\n$4$\n');
    expect(await dataFiles(folder)).toEqual([join(folder, 'algebra', '1.txt')]);
    const { problems, layouts } = await loadProblems(folder);
    expect([problems, layouts]).toEqual([[{ problem: '2 + 2?', answer: '$4$' }], ['plain']]);
    const records = await collected(loadRecords(folder).records);
    expect(records).toMatchObject([{ problem: '2 + 2?', gold_answer: '$4$', steps: [] }]);
    writeFileSync(join(folder, 'rows.jsonl'), '{"question": "1?", "answer": "1"}\n');
    expect(await dataFiles(folder)).toEqual([join(folder, 'rows.jsonl')]);
  });
});
