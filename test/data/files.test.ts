// The data files behind a path.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { dataFiles } from '../../src/data/files.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** A folder with empty files of these names. */
function folderOf(...names: readonly string[]): string {
  const folder = temporaryDirectory();
  for (const name of names) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), '');
  }
  return folder;
}

describe('the files of a folder', () => {
  it.each(['part-1.jsonl.zst', 'part-1.JSONL', 'part-1.tsv', 'part-1.arrow', 'part-1.csv.bz2'])(
    'are not read without %s, which would be missed by nobody',
    async (name) => {
      const folder = folderOf('part-0.jsonl', 'README.md', 'figure.png', name);
      const sentence = `data that is not read beside data that is: ${name};`;
      await expect(dataFiles(folder)).rejects.toThrow(sentence);
      await expect(dataFiles(join(folder, 'part-*'))).rejects.toThrow(sentence);
      expect(await dataFiles(join(folder, '*.jsonl'))).toEqual([join(folder, 'part-0.jsonl')]);
    },
  );

  it.each([
    ['train.jsonl', 'train.parquet'],
    ['train.jsonl', 'train.jsonl.gz'],
    ['train.csv', 'train.json'],
  ])('are not read twice: %s beside %s', async (one, other) => {
    const folder = folderOf('more.jsonl', one, other);
    const sentence = /^.*holds train\.\S+ and train\.\S+, and rows that are in both would count twice;/;
    await expect(dataFiles(folder)).rejects.toThrow(sentence);
    await expect(dataFiles(join(folder, 'train*'))).rejects.toThrow(sentence);
    expect(await dataFiles(join(folder, 'more*'))).toEqual([join(folder, 'more.jsonl')]);
    expect(await dataFiles(join(folder, one))).toEqual([join(folder, one)]);
  });

  it.each([
    ['train.jsonl', 'test.jsonl'],
    ['gsm8k-train-00000-of-00001.parquet', 'gsm8k-validation-00000-of-00001.parquet'],
    ['train/algebra.json', 'test/algebra.json'],
  ])('are not read together: %s and %s', async (one, other) => {
    const folder = folderOf(one, other);
    await expect(dataFiles(folder)).rejects.toThrow(/holds files of several parts: .* \(train\)/);
    expect(await dataFiles(join(folder, one))).toEqual([join(folder, one)]);
  });

  it('are read together where they are of one part, or of none by their names', async () => {
    for (const names of [
      ['train-0.jsonl', 'training-1.jsonl', 'more.jsonl'],
      ['a.jsonl', 'b.jsonl'],
      ['eval/train-a.jsonl', 'train-b.jsonl'],
    ])
      expect(await dataFiles(folderOf(...names))).toHaveLength(names.length);
  });
});
