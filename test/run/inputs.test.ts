import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { completeRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { acceptedChanges, readRunInputs, unnamedValues } from '../../src/run/inputs.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
  for (const name of ['a.jsonl', 'b.jsonl']) writeFileSync(join(folder, name), name);
});

const inputs = (b: string, ofB: object, ofA: object = {}) =>
  readRunInputs(
    completeRunConfig({
      method: 'sft',
      data: {
        train: [
          { path: join(folder, 'a.jsonl'), ...ofA },
          { path: join(folder, b), ...ofB },
        ],
      },
      model: { base: 'embedded' },
    }),
  );

it('a resumed run keeps the content of every training file and its weight or share', async () => {
  const before = await inputs('b.jsonl', { weight: 2 });
  expect(acceptedChanges('run', before, await inputs('b.jsonl', { weight: 2 }))).toEqual({
    changed: [],
    added: [],
    gone: [],
  });
  const other = await inputs('b.jsonl', { weight: 3 });
  expect(() => acceptedChanges('run', before, other)).toThrow(
    /data\.train\.weight is \[1,3\] and was \[1,2\]/,
  );
  const shares = (a: number, b: number) => inputs('b.jsonl', { share: b }, { share: a });
  const [shared, reshared] = [await shares(1, 1), await shares(1, 2)];
  expect(() => acceptedChanges('run', shared, reshared)).toThrow(
    /data\.train\.share is \[1,2\] and was \[1,1\]/,
  );
  // Neither is a key of its own, and leaving it out is a change like any other.
  const plain = await inputs('b.jsonl', {});
  const options = { isKey: (key: string) => !key.startsWith('data.train.') };
  expect(() => acceptedChanges('run', shared, plain, options)).toThrow(
    /data\.train\.share was \[1,1\] and is gone/,
  );
  expect(() => acceptedChanges('run', before, plain, options)).toThrow(
    /data\.train\.weight was \[1,2\] and is gone/,
  );
  writeFileSync(join(folder, 'b.jsonl'), 'changed');
  const changed = await inputs('b.jsonl', { weight: 2 });
  expect(() => acceptedChanges('run', before, changed)).toThrow(
    /content of data\.train\.1: b\.jsonl was changed/,
  );
  renameSync(join(folder, 'b.jsonl'), join(folder, 'c.jsonl'));
  const moved = await inputs('c.jsonl', { weight: 2 });
  expect(() => acceptedChanges('run', before, moved)).toThrow(/b\.jsonl is missing/);
});

it('other weights of a base are other content, of whatever length', async () => {
  const base = join(folder, 'base');
  mkdirSync(base);
  const file = join(base, 'model.safetensors');
  const of = async (bytes: Uint8Array) => {
    writeFileSync(file, bytes);
    return readRunInputs(
      completeRunConfig({ method: 'sft', data: { source: 'arithmetic' }, model: { base } }),
    );
  };
  for (const length of [0, 5, 70_000, 6_000_000]) {
    const bytes = new Uint8Array(length).fill(7);
    const [before, same] = [await of(bytes), await of(bytes)];
    expect(same.files).toEqual(before.files);
    if (length === 0) continue;
    for (const at of [0, length - 1]) {
      const other = Uint8Array.from(bytes);
      other[at] = 8;
      const now = await of(other);
      expect(() => acceptedChanges('run', before, now)).toThrow(
        /content of model\.base: model\.safetensors was changed/,
      );
    }
  }
});

it('a key that came since a run began has its default, and no other value', () => {
  const text = 'method: sft\nmodel: {base: embedded}\ndata: {source: arithmetic}\n';
  const name = 'config.yaml';
  const of = (settings: readonly string[] = []) => parseRunConfig(text, { name, settings }).config;
  const values = unnamedValues(text, name, of());
  expect(values).toMatchObject({ 'sft.class_weight': 'auto', 'run.seed': 42 });
  expect(Object.keys(values).filter((key) => ['method', 'data.source', 'model.base'].includes(key))).toEqual(
    [],
  );

  const inputs = (config: object) => ({ config: config as Record<string, unknown>, files: {} });
  const defaults = () => values;
  const began = inputs({ method: 'sft', 'sft.learning_rate': 1e-4 });
  const now = (more: object) => inputs({ ...began.config, 'sft.class_weight': 'auto', ...more });
  expect(acceptedChanges('run', began, now({}), { defaults })).toEqual({
    changed: [],
    added: ['sft.class_weight "auto"'],
    gone: [],
  });
  // Another value than the default, and a key that has changed.
  expect(() => acceptedChanges('run', began, now({ 'sft.class_weight': 'balanced' }), { defaults })).toThrow(
    'run began with another configuration: sft.class_weight is "balanced" and was not there; restore it',
  );
  expect(() => acceptedChanges('run', began, now({ 'sft.learning_rate': 1 }), { defaults })).toThrow(
    'sft.learning_rate is 1 and was 0.0001',
  );
  // A key that config.yaml names was written there by hand.
  const typed = unnamedValues(
    `${text}sft: {class_weight: balanced}\n`,
    name,
    of(['sft.class_weight=balanced']),
  );
  expect(typed).not.toHaveProperty('sft.class_weight');
  expect(() =>
    acceptedChanges('run', began, now({ 'sft.class_weight': 'balanced' }), { defaults: () => typed }),
  ).toThrow(/class_weight/);
});

it('a resumed run keeps the number and the order of its training files', async () => {
  const of = (names: readonly string[]) =>
    readRunInputs(
      completeRunConfig({
        method: 'sft',
        data: { train: names.map((name) => join(folder, name)) },
        model: { base: 'embedded' },
      }),
    );
  const before = await of(['a.jsonl', 'b.jsonl']);
  const other = await of(['b.jsonl', 'a.jsonl']);
  const fewer = await of(['a.jsonl']);
  expect(() => acceptedChanges('run', before, other)).toThrow(
    'run began with its training files in another order; restore data.train, or start a new run',
  );
  expect(() => acceptedChanges('run', before, fewer)).toThrow(
    'run began with 2 training files, and data.train names 1 training file; restore data.train, or start a new run',
  );
});
