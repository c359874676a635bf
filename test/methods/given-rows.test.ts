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
}, 60_000);

it.each([
  [{ train: [] }, /^train: rows\.train: expected a list of rows such as .*, found an empty list/],
  [{ train: [{ problem: '1 + 1' }, 'text'] }, /^train: rows\.train: .*; row 2 is "text"/],
  [{ tests: rows }, /^train: rows: there is no option "tests"; did you mean test/],
  [{ validation: rows }, /^train: rows: expected the part `train`, found none/],
])('refuses %j', async (given, message) => {
  await expect(train(config, { rows: given as never, output: join(folder, 'run') })).rejects.toThrow(message);
  expect(readdirSync(folder)).toEqual([]);
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
