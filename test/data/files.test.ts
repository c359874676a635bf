// The data files behind a path.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { dataFiles } from '../../src/data/files.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

describe('the files of a folder', () => {
  it.each(['part-1.jsonl.zst', 'part-1.JSONL', 'part-1.tsv', 'part-1.arrow', 'part-1.csv.bz2'])(
    'are not read without %s, which would be missed by nobody',
    async (name) => {
      const folder = temporaryDirectory();
      for (const each of ['part-0.jsonl', 'README.md', 'figure.png', name])
        writeFileSync(join(folder, each), '');
      const sentence = `data that is not read beside data that is: ${name};`;
      await expect(dataFiles(folder)).rejects.toThrow(sentence);
      await expect(dataFiles(join(folder, 'part-*'))).rejects.toThrow(sentence);
      expect(await dataFiles(join(folder, '*.jsonl'))).toEqual([join(folder, 'part-0.jsonl')]);
    },
  );
});
