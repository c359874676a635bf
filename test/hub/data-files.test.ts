import { describe, expect, it } from 'vitest';
import { pathOf, selectDataFiles } from '../../src/hub/data-files.js';

// File lists as on the hub.
const trl = [
  '.gitattributes',
  'README.md',
  'data/test-00000-of-00001.parquet',
  'data/train-00000-of-00001.parquet',
];
const processbench = [
  '.gitattributes',
  'README.md',
  'gsm8k.json',
  'math.json',
  'olympiadbench.json',
  'omnimath.json',
];
const gsm8k = [
  'README.md',
  'main/test-00000-of-00001.parquet',
  'main/train-00000-of-00001.parquet',
  'socratic/test-00000-of-00001.parquet',
  'socratic/train-00000-of-00001.parquet',
];
const sharded = [0, 1, 2].map((i) => `data/train-0000${i}-of-00003.parquet`);

const what = 'data set a/b';
const select = (paths: readonly string[], part: 'train' | 'validation' | 'test', selection?: string) =>
  selectDataFiles(paths, { part, what, ...(selection === undefined ? {} : { selection }) });

describe('the files of a data set', () => {
  it('are those of the requested part', () => {
    expect(select(trl, 'train')).toEqual(['data/train-00000-of-00001.parquet']);
    expect(select(trl, 'test')).toEqual(['data/test-00000-of-00001.parquet']);
    expect(() => select(trl, 'validation')).toThrow(
      'the data set a/b has no validation split; name a file or split behind a colon, it has data/test-00000-of-00001.parquet, ' +
        'data/train-00000-of-00001.parquet',
    );
    expect(select(['dev.jsonl', 'train.jsonl'], 'validation')).toEqual(['dev.jsonl']);
    expect(select(['phase1_train.jsonl', 'phase1_test.jsonl'], 'train')).toEqual(['phase1_train.jsonl']);
  });

  it('are all files if none belongs to a split', () => {
    expect(select(['math-shepherd.jsonl', 'dataset_infos.json'], 'train')).toEqual(['math-shepherd.jsonl']);
    expect(select(processbench, 'test')).toHaveLength(4);
  });

  it('are those that the user names', () => {
    expect(select(processbench, 'test', 'math')).toEqual(['math.json']);
    expect(select(gsm8k, 'train', 'main/test')).toEqual(['main/test-00000-of-00001.parquet']);
    expect(select(gsm8k, 'train', 'socratic/train-00000-of-00001.parquet')).toHaveLength(1);
    expect(() => select(processbench, 'test', 'mat')).toThrow(
      'has no file for :mat; it has gsm8k.json, math.json,',
    );
  });

  it('are refused if no format is known', () => {
    expect(() => select(['README.md', 'data.zip'], 'train')).toThrow(
      'the data set a/b has no data file that can be read; expected .jsonl, .json, .csv (.gz) or .parquet, found README.md, data.zip',
    );
  });
});

describe('the path of the files', () => {
  const path = (chosen: readonly string[], all: readonly string[]) => pathOf('/s', chosen, { all, what });

  it('is the file, or a pattern that matches exactly these files', () => {
    expect(path(['data/a.parquet'], trl)).toBe('/s/data/a.parquet');
    expect(path(sharded, [...trl, ...sharded])).toBe('/s/data/train-0000*-of-00003.parquet');
    expect(path(select(processbench, 'test'), processbench)).toBe('/s/*.json');
  });

  it('is refused if files of several kinds would be mixed', () => {
    expect(() => path(select(gsm8k, 'train'), gsm8k)).toThrow(
      'the data set a/b has several kinds of files (main/train-00000-of-00001.parquet, ' +
        'socratic/train-00000-of-00001.parquet); name a file, split or folder behind a colon, as in ' +
        'a/b:main/train-00000-of-00001.parquet',
    );
    const infos = [...processbench, 'dataset_infos.json'];
    expect(() => path(select(infos, 'test'), infos)).toThrow('has several kinds of files');
  });
});
