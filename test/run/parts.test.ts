import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { type StepRecord, verdictSamples } from '../../src/records/record.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { names, records } from './configured.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function write(name: string, problems: readonly string[]): string {
  const rows = problems.map((problem) => ({
    problem,
    steps: ['a', 'b', 'c'].map((text, i) => ({ text, label: i % 2, kind: 'normal' })),
  }));
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

const samplesOf = (part: readonly StepRecord[]) => part.flatMap((record) => [...verdictSamples(record)]);

describe('the records of a configuration', () => {
  it('are generated and split 8:1:1, equally for the same seed', async () => {
    const data = { source: 'arithmetic', arithmetic: { samples: 1000, steps: 3, error_rate: 0.5 } };
    const { parts } = await records(data);
    expect(parts.train.length + parts.validation.length + parts.test.length).toBe(1000);
    expect(parts.train.length).toBeGreaterThan(740);
    expect(parts.test.length).toBeGreaterThan(60);
    expect(parts.train[0]!.steps).toHaveLength(3);
    expect(await records(data)).toEqual({ parts, reports: [] });
    expect((await records({ ...data, seed: 1 })).parts).not.toEqual(parts);
  });

  it('of generated problems are grouped by level or template, and by nothing else', async () => {
    const data = { source: 'word_problems', word_problems: { samples: 40, levels: [1, 1] } };
    const groups = async (group_by: string) => {
      const { parts } = await records({ ...data, group_by });
      return new Set(parts.train.map(({ group }) => group));
    };
    expect([...(await groups('level'))].sort()).toEqual(['level 1', 'level 2']);
    expect((await groups('template')).size).toBeGreaterThan(3);
    await expect(groups('colour')).rejects.toThrow(/grouped by level or template, found "colour"/);
    await expect(records({ source: 'arithmetic', group_by: 'level' })).rejects.toThrow(
      /no column to group by/,
    );
  });

  it('of one problem are all in one part', async () => {
    const { parts } = await records({ train: write('a.jsonl', [...names(300), ...names(300)]) });
    const train = new Set(parts.train.map((record) => record.problem));
    for (const { problem } of [...parts.validation, ...parts.test]) expect(train.has(problem)).toBe(false);
    expect(parts.test.length).toBeGreaterThan(0);
  });

  it.each(['original_question', 'original_problem', 'original'])(
    'of variants of one problem are all in one part, by %s',
    async (column) => {
      const rows = names(400).map((problem, i) => ({
        problem,
        [column]: `Original ${i % 100}`,
        steps: [{ text: 'a', label: 1 }],
      }));
      const train = join(folder, 'variants.jsonl');
      writeFileSync(train, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
      const { parts } = await records({ train });
      const originals = Object.values(parts).map((part) => new Set(part.map(({ original }) => original)));
      expect(originals.map(({ size }) => size).reduce((sum, size) => sum + size)).toBe(100);
      expect(parts.test.length).toBeGreaterThan(0);
      expect(parts.test.length % 4).toBe(0);
    },
  );

  it('split by sample put every label into exactly one part', async () => {
    const { parts } = await records({ train: write('a.jsonl', names(300)), split_unit: 'sample' });
    const all = [parts.train, parts.validation, parts.test].map((part) => samplesOf(part).length);
    expect(all.reduce((a, b) => a + b)).toBe(900);
    for (const count of all) expect(count).toBeGreaterThan(50);
  });

  it('come from several files, each as often as its weight says, the same for the same seed', async () => {
    const [a, b, c] = [
      write('a.jsonl', names(400)),
      write('b.jsonl', names(400, 'q')),
      write('c.jsonl', names(9, 'r')),
    ];
    const train = [a, { path: b, weight: 0.25 }, { path: c, weight: 2.5 }];
    const { parts, reports } = await records({ train, split: [8, 1, 1] });
    const count = (part: readonly StepRecord[], prefix: string) =>
      part.filter(({ problem }) => problem.startsWith(prefix)).length;
    expect(reports).toHaveLength(3);
    expect(count(parts.train, 'p')).toBeGreaterThan(290);
    const share = count(parts.train, 'q') / 320;
    expect(share).toBeGreaterThan(0.18);
    expect(share).toBeLessThan(0.32);
    const times = (problem: string) => parts.train.filter((record) => record.problem === problem).length;
    const repeats = names(9, 'r')
      .map(times)
      .filter((n) => n > 0);
    expect([...new Set(repeats)].sort()).toEqual([2, 3]);
    // Held-out solutions come once, whatever the weight.
    const held = [...parts.validation, ...parts.test];
    expect(new Set(held.map(({ problem }) => problem)).size).toBe(held.length);
    expect(count(held, 'q')).toBeGreaterThan(50);
    expect((await records({ train, split: [8, 1, 1] })).parts).toEqual(parts);
    // What one file gives depends on no other.
    const { parts: alone } = await records({ train: [{ path: b, weight: 0.25 }] });
    expect(alone.train).toEqual(parts.train.filter(({ problem }) => problem.startsWith('q')));
    expect((await records({ train, seed: 1 })).parts).not.toEqual(parts);
  });

  it('have the columns that data.columns renames', async () => {
    const path = join(folder, 'named.jsonl');
    const row = { question: 'One?', solution: ['a', 'b'], first_error: 1 };
    writeFileSync(path, JSON.stringify(row));
    const columns = { problem: 'question', steps: 'solution', label: 'first_error' };
    const { parts } = await records({ train: path, columns, split: [1, 0, 0] });
    expect(parts.train[0]).toMatchObject({ problem: 'One?', steps: [{ label: 1 }, { label: 0 }] });
    writeFileSync(path, JSON.stringify({ ...row, question: undefined, task: 'One?' }));
    await expect(records({ train: path, columns })).rejects.toThrow(
      "named.jsonl, line 1: column 'question' (data.columns.problem) is missing; the columns are solution, first_error, task",
    );
  });

  it.each([
    [[], /data\.train/],
    [[{ path: 'a.jsonl', weight: 0 }], /data\.train.*weight/s],
    [[{ path: 'a.jsonl', times: 2 }], /data\.train/],
  ])('refuse the list %j', (train, message) => {
    expect(() => completeRunConfig({ method: 'sft', data: { train } })).toThrow(message);
  });

  it('of validation and test come from their own files if given', async () => {
    const { parts, reports } = await records({
      train: write('a.jsonl', names(300)),
      test: write('b.jsonl', names(7, 'q')),
    });
    expect(parts.test.map((record) => record.problem)).toEqual(names(7, 'q'));
    expect(parts.train.length + parts.validation.length).toBe(300);
    expect(parts.validation.length).toBeGreaterThan(10);
    expect(reports.map((report) => report.records)).toEqual([300, 7]);
  });

  it('can be limited for training, but not for the test', async () => {
    const whole = await records({ train: write('a.jsonl', names(300)) });
    const few = await records({ train: join(folder, 'a.jsonl'), max_samples: 20 });
    expect(few.parts.train).toHaveLength(20);
    expect(few.parts.test).toEqual(whole.parts.test);
  });

  it('can be limited to their first steps', async () => {
    const { parts } = await records({ train: write('a.jsonl', names(30)), max_steps: 2 });
    for (const record of parts.train) expect(record.steps.map((step) => step.label)).toEqual([0, 1]);
  });

  it('are refused if nothing is left to train on', async () => {
    writeFileSync(join(folder, 'empty.jsonl'), '');
    await expect(records({ train: join(folder, 'empty.jsonl') })).rejects.toThrow(
      'gives no solution for training',
    );
    const one = { train: write('one.jsonl', names(1)), split: [0.001, 1, 1] };
    await expect(records(one)).rejects.toThrow(
      /one\.jsonl gives no solution for training: all 1 were drawn for validation and test; give more rows, or a larger first share/,
    );
    await expect(
      records({ ...one, test: write('test.jsonl', names(1)), split: [0.001, 1, 0] }),
    ).rejects.toThrow(/gives no solution for training$/);
  });

  const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
  it.skipIf(!prm800k)('of PRM800K follow the options of data.prm800k', async () => {
    const every = { skip_finish_reasons: [] };
    const count = async (extra: Record<string, unknown>, options: Record<string, unknown> = {}) => {
      const { parts } = await records({ train: prm800k, ...extra, prm800k: { ...every, ...options } });
      const samples = [parts.train, parts.validation, parts.test].flatMap(samplesOf);
      return [samples.length, samples.filter((sample) => sample.label === 0).length];
    };
    expect(await count({})).toEqual([10_801, 1566]);
    expect(await count({ neutral: 'negative' })).toEqual([10_801, 1566 + 639]);
    expect(await count({ neutral: 'drop' })).toEqual([10_801 - 639, 1566]);
    expect(await count({}, { phase: 2 }).catch((error: Error) => error.message)).toMatch(
      /gives no solution for training/,
    );
  });
});
