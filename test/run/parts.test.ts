import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { type StepRecord, verdictSamples } from '../../src/records/record.js';
import { configuredRecords } from '../../src/run/parts.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

const records = (data: Record<string, unknown>) =>
  configuredRecords(completeRunConfig({ method: 'sft', data }).data);

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
const names = (count: number, prefix = 'p') => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

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

  it('of one problem are all in one part', async () => {
    const { parts } = await records({ train: write('a.jsonl', [...names(300), ...names(300)]) });
    const train = new Set(parts.train.map((record) => record.problem));
    for (const { problem } of [...parts.validation, ...parts.test]) expect(train.has(problem)).toBe(false);
    expect(parts.test.length).toBeGreaterThan(0);
  });

  it('split by sample put every label into exactly one part', async () => {
    const { parts } = await records({ train: write('a.jsonl', names(300)), split_unit: 'sample' });
    const all = [parts.train, parts.validation, parts.test].map((part) => samplesOf(part).length);
    expect(all.reduce((a, b) => a + b)).toBe(900);
    for (const count of all) expect(count).toBeGreaterThan(50);
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
