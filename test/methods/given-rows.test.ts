// Training on rows that a program has in memory: as from a file, resumable, and refused in a sentence.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { resume, train } from '../../src/methods/run.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-rows-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const rows = Array.from({ length: 40 }, (_, i) => ({
  problem: `${i} + 7 - 3`,
  steps: [`${i}+7=${i + 7}`, `${i + 7}-3=${i + 4 + (i % 2)}`],
  labels: [1, 1 - (i % 2)],
}));

const config = {
  method: 'sft',
  model: { base: 'embedded', dtype: 'f32' },
  lora: { r: 2, lora_alpha: 4 },
  data: { max_length: 128 },
  sft: { max_steps: 2, tokens_per_step: 256 },
  run: { device: 'cpu', threads: 1 },
} as const;

it('gives what the same rows in a file give, and goes on after a stop', async () => {
  const parts = { train: rows.slice(0, 20), validation: rows.slice(20, 30), test: rows.slice(30) };
  const file = (name: keyof typeof parts) => {
    const path = join(folder, `${name}.jsonl`);
    writeFileSync(path, parts[name].map((row) => `${JSON.stringify(row)}\n`).join(''));
    return path;
  };
  const data = { train: file('train'), validation: file('validation'), test: file('test') };
  const fromFiles = await train(
    { ...config, data: { ...config.data, ...data } },
    { output: join(folder, 'files') },
  );
  const stop = new AbortController();
  const output = join(folder, 'runs', 'memory');
  const { status, directory } = await train(config, {
    ...{ rows: parts, output, signal: stop.signal },
    onStep: () => stop.abort(),
  });
  expect(status).toBe('interrupted');
  const ended = await resume(directory);
  expect([ended.status, ended.tokens]).toEqual(['finished', fromFiles.tokens]);
  expect(ended.evaluation?.metrics).toEqual(fromFiles.evaluation?.metrics);
  const kept = readdirSync(dirname(directory)).filter((name) => name.endsWith('.jsonl'));
  expect(kept.map((name) => name.replace(/-[0-9a-f]{12}\./, '.')).sort()).toEqual([
    'rows-test.jsonl',
    'rows-train.jsonl',
    'rows-validation.jsonl',
  ]);
});

it('validation and test may be in memory beside files to train on', async () => {
  const file = join(folder, 'train.jsonl');
  writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const data = { ...config.data, train: [{ path: file, weight: 2 }] };
  const mixed = { ...config, data };
  const { status, evaluation } = await train(mixed, { rows: { test: rows }, output: join(folder, 'run') });
  expect(status).toBe('finished');
  expect(evaluation?.data).toMatchObject({ test_solutions: rows.length });
});

it.each([
  [{ train: [] }, /^train: rows\.train: expected a list of rows such as .*, found an empty list/],
  [{ train: [{ problem: '1 + 1' }, 'text'] }, /^train: rows\.train: .*; row 2 is "text"/],
  [{ tests: rows }, /^train: rows: there is no option "tests"; did you mean test/],
  [{}, /^train: rows: expected a part, `train`, `validation` or `test`, found none/],
  [{ validation: rows }, /data\.train is missing/],
])('refuses %j', async (given, message) => {
  await expect(train(config, { rows: given as never, output: join(folder, 'run') })).rejects.toThrow(message);
  expect(readdirSync(folder)).toEqual([]);
});

it.each([
  [
    { train: [...rows.slice(0, 5), { ...rows[0], labels: [1] }] },
    'train: rows.train, row 6: labels: 1, steps: 2; expected a label for each (read as stepwise); ' +
      "correct the row, or leave such rows out by data.on_bad_row: 'skip'",
  ],
  [
    { train: rows, validation: [rows[0] as object, { ...rows[0], problem: 3 }] },
    "train: rows.validation, row 2: column 'problem' holds the number 3; expected text (read as stepwise); " +
      "correct the row, or leave such rows out by data.on_bad_row: 'skip'",
  ],
  [
    { train: [{ foo: 1 }] },
    'train: rows.train, row 1: the columns foo are of no known layout; ' +
      'expected {"question": "…", "steps": ["…"], "labels": [1, 0]}; ' +
      "columns of other names are renamed by data.columns, such as { question: 'NAME' }",
  ],
])('refuses a row by its number and field, and leaves nothing: %#', async (given, message) => {
  await expect(train(config, { rows: given, output: join(folder, 'run') })).rejects.toMatchObject({
    message,
    name: 'DataError',
  });
  expect(readdirSync(folder)).toEqual([]);
});

it('a run that is refused leaves the rows of another one', async () => {
  const first = await train(config, { rows: { train: rows }, output: join(folder, 'first') });
  const again = train(config, { rows: { train: rows }, output: join(folder, 'first') });
  await expect(again).rejects.toThrow(/first/);
  expect(readdirSync(folder).filter((name) => name.startsWith('rows-'))).toHaveLength(1);
  rmSync(join(first.directory, 'adapter'), { recursive: true }); // which it then writes again
  expect((await resume(first.directory)).status).toBe('finished');
  expect(readdirSync(first.directory)).toContain('adapter');
});

it('refuses data and rows for the same part, and writes nothing for a configuration that cannot be', async () => {
  const options = { rows: { train: rows }, output: join(folder, 'runs', 'run') };
  const both = { ...config, data: { train: 'rows.jsonl' } };
  await expect(train(both, options)).rejects.toThrow(
    'train: there are rows.train and data.train; leave one of them out',
  );
  const wrong = { ...config, sft: { max_steps: 1.5 } };
  await expect(train(wrong, options)).rejects.toThrow(/sft\.max_steps/);
  expect(readdirSync(folder)).toEqual([]);
});
