import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { formatLoadReport } from '../../src/data/summary.js';
import { countsByShare } from '../../src/data/training-files.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { StepRecord } from '../../src/records/record.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { names, records } from './configured.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

/** Solutions of three steps; in every second one the last step is wrong. */
function write(name: string, problems: readonly string[]): string {
  const rows = problems.map((problem, i) => ({ problem, steps: ['a', 'b', 'c'], labels: [1, 1, i % 2] }));
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

const countOf = (part: readonly StepRecord[], prefix: string) =>
  part.filter(({ problem }) => problem.startsWith(prefix)).length;

describe('shares of training files', () => {
  it('make the largest mixture in which no solution stands twice', () => {
    expect(countsByShare([1, 1], [100, 400])).toEqual([100, 100]);
    expect(countsByShare([0.5, 0.3, 0.2], [1000, 300, 1000])).toEqual([500, 300, 200]);
  });

  it('are those of the training solutions, and the reports say so', async () => {
    const train = [
      { path: write('a.jsonl', names(200, 'a')), share: 2 },
      { path: write('b.jsonl', names(2000, 'b')), share: 1 },
      { path: write('c.jsonl', names(1000, 'c')), share: 1 },
    ];
    const { parts, reports } = await records({ train, split: [8, 1, 1] });
    const [a, b, c] = ['a', 'b', 'c'].map((prefix) => countOf(parts.train, prefix)) as [
      number,
      number,
      number,
    ];
    expect(a).toBe(200 - countOf(parts.validation, 'a') - countOf(parts.test, 'a'));
    expect([b, c]).toEqual([Math.round(a / 2), Math.round(a / 2)]);
    expect(new Set(parts.train.map(({ problem }) => problem)).size).toBe(parts.train.length);
    // Held-out parts are not mixed.
    expect(countOf(parts.test, 'b')).toBeGreaterThan(150);
    const all = a + b + c;
    expect(reports.map(({ training }) => training)).toEqual(
      [a, b, c].map((solutions, i) => ({
        solutions,
        share: solutions / all,
        labelled: 3 * solutions,
        wrong: parts.train.filter(
          ({ problem, steps }) => problem.startsWith('abc'[i]!) && steps[2]?.label === 0,
        ).length,
        overlapping: 0,
      })),
    );
    expect(formatLoadReport(reports[1]!)[1]).toMatch(
      new RegExp(
        `^  for training: ${b} solutions, 2\\d\\.\\d % of the mixture, ${3 * b} labelled steps, of which wrong \\d+ \\(1\\d\\.\\d %\\)$`,
      ),
    );
    expect((await records({ train, split: [8, 1, 1] })).parts).toEqual(parts);
  });

  it('take as many of a file whose solutions stand there twice', async () => {
    const twins = write('twins.jsonl', [...names(50, 't'), ...names(50, 't')]);
    const train = [
      { path: twins, share: 1 },
      { path: write('others.jsonl', names(90, 'o')), share: 8 },
    ];
    for (const seed of [0, 1, 2]) {
      const { parts } = await records({ train, seed, split: [1, 0, 0] });
      expect([countOf(parts.train, 't'), countOf(parts.train, 'o')]).toEqual([11, 90]);
    }
  });

  it('are drawn before max_samples, and of solutions with a training step', async () => {
    const train = [
      { path: write('a.jsonl', names(100, 'a')), share: 1 },
      { path: write('b.jsonl', names(300, 'b')), share: 1 },
    ];
    const { parts, reports } = await records({ train, split: [1, 0, 0], max_samples: 50 });
    expect(parts.train).toHaveLength(50);
    expect(reports.map(({ training }) => training?.solutions)).toEqual([100, 100]);
    const torn = await records({ train, split_unit: 'sample', split: [1, 1, 1] });
    const [a, b] = ['a', 'b'].map((prefix) => countOf(torn.parts.train, prefix));
    expect(a).toBe(b);
    expect(a).toBeLessThan(100);
  });

  it('are of what on_overlap leaves', async () => {
    const test = write('test.jsonl', names(150, 'a'));
    const train = [
      { path: write('a.jsonl', names(200, 'a')), share: 1 },
      { path: write('b.jsonl', names(50, 'b')), share: 1 },
    ];
    const held = { test, validation: write('validation.jsonl', ['v']) };
    const { parts } = await records({ train, ...held, on_overlap: 'skip' });
    expect([countOf(parts.train, 'a'), countOf(parts.train, 'b')]).toEqual([50, 50]);
    const none = write('none.jsonl', names(20, 'a'));
    await expect(
      records({ train: [{ path: none, share: 1 }, train[1]], ...held, on_overlap: 'skip' }),
    ).rejects.toThrow(
      /none\.jsonl has a share of 1 in data\.train and no solution for training: its 20 are of problems that validation or test have/,
    );
    const empty = write('empty.jsonl', []);
    await expect(records({ train: [{ path: empty, share: 1 }, train[1]], ...held })).rejects.toThrow(
      /empty\.jsonl has a share of 1 in data\.train and no solution for training: give more rows, or remove it/,
    );
    const little = [
      { path: write('c.jsonl', names(20, 'c')), share: 99 },
      { path: write('d.jsonl', names(20, 'd')), share: 1 },
    ];
    await expect(records({ train: little, ...held })).rejects.toThrow(
      /d\.jsonl has a share of 1 in data\.train, which is less than one solution/,
    );
  });

  it.each([
    [[{ path: 'a.jsonl', share: 1, weight: 2 }], 'a.jsonl has a weight and a share; keep one of them'],
    [
      [{ path: 'a.jsonl', share: 1 }, 'b.jsonl'],
      'a.jsonl has a share and b.jsonl has none; give every file a share, or none',
    ],
    [[{ path: 'a.jsonl', share: 0 }], 'data.train.0.share expects'],
    [
      [{ path: 'a.jsonl', share: 0.3 }],
      'a.jsonl has a share and is the only file; add the others, or give it a weight',
    ],
    [
      [{ path: 'a.jsonl', share: '0.5' }],
      'data.train.0.share expects a number above 0 and of at most 1000, found the text "0.5"',
    ],
    [['a.jsonl', { file: 'b.jsonl' }], 'data.train.1'],
  ])('refuse the list %j', (train, message) => {
    expect(() => completeRunConfig({ method: 'sft', data: { train } })).toThrow(message);
  });
});

describe('data.on_overlap', () => {
  const long =
    'Ann has twelve red apples and gives five of them to her brother Tom before lunch. How many are left?';

  it('skip leaves out training solutions of held-out problems, word for word or nearly', async () => {
    const train = write('train.jsonl', ['p1', 'p2', 'P2 ', long.replace('red', 'green'), 'p3']);
    const held = { validation: write('validation.jsonl', ['p2']), test: write('test.jsonl', [long]) };
    const { parts, reports } = await records({ train, ...held, on_overlap: 'skip' });
    expect(parts.train.map(({ problem }) => problem)).toEqual(['p1', 'p3']);
    expect([parts.validation.length, parts.test.length]).toEqual([1, 1]);
    expect(reports[0]?.training).toMatchObject({ solutions: 2, share: 1, overlapping: 3 });
    expect(formatLoadReport(reports[0]!).at(-1)).toBe(
      '  left out (data.on_overlap): 3 of problems that the file of validation or test has',
    );
    expect((await records({ train, ...held })).parts.train).toHaveLength(5);
  });

  it('skip counts solutions, however their steps are split, and says why nothing is left', async () => {
    const [train, test] = [write('train.jsonl', names(60, 'p')), write('test.jsonl', names(40, 'p'))];
    const { reports } = await records({ train, test, on_overlap: 'skip', split_unit: 'sample' });
    expect(reports[0]?.training?.overlapping).toBe(40);
    await expect(records({ train: test, test, on_overlap: 'skip' })).rejects.toThrow(
      /gives no solution for training: data\.on_overlap skip leaves out problems that the file of validation or test has/,
    );
  });

  it('skip keeps test problems out of a validation part that data.split draws, too', async () => {
    const train = write('train.jsonl', names(200, 'p'));
    const test = write('test.jsonl', names(100, 'p'));
    const { parts, reports } = await records({ train, test, on_overlap: 'skip', split: [1, 1, 0] });
    const tested = new Set(parts.test.map(({ problem }) => problem));
    expect(parts.validation.length).toBeGreaterThan(30);
    for (const { problem } of [...parts.train, ...parts.validation]) expect(tested.has(problem)).toBe(false);
    expect(reports[0]?.training?.overlapping).toBe(100);
  });

  it('skip needs a file to compare with', () => {
    expect(() =>
      completeRunConfig({ method: 'sft', data: { train: 'a.jsonl', on_overlap: 'skip' } }),
    ).toThrow(/on_overlap is skip, and neither data\.validation nor data\.test names a file/);
  });
});
