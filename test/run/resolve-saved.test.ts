// What a name of a model means to every command.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { withModel } from '../../src/cli/chosen/model-options.js';
import { DEFAULT_MODEL, namedModel, savedModel } from '../../src/models/saved.js';
import { resolveSaved } from '../../src/run/resolve-saved.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
const at = (path: string) => join(folder, path);
beforeEach(() => {
  folder = temporaryDirectory();
  for (const name of ['run/adapter', 'whole/model', 'model', 'empty', 'begun'])
    mkdirSync(at(name), { recursive: true });
  const adapter = { peft_type: 'LORA', r: 4, lora_alpha: 8, target_modules: ['q_proj'] };
  const config = JSON.stringify({ ...adapter, base_model_name_or_path: 'word-problems' });
  writeFileSync(at('run/adapter/adapter_config.json'), config);
  for (const name of ['run', 'whole', 'begun']) writeFileSync(at(`${name}/config.yaml`), 'method: sft\n');
  for (const name of ['model', 'whole/model']) writeFileSync(at(`${name}/config.json`), '{}');
});

it.each([
  ['word-problems', 'package', undefined],
  ['owner/name', 'elsewhere', undefined],
])('%s is %s', (name, kind, adapter) => {
  expect(namedModel(name)).toEqual({ name, kind, ...(adapter ? { adapter } : {}) });
});

it.each([
  ['run', 'run', 'run/adapter'],
  ['run/adapter', 'adapter', 'run/adapter'],
  ['whole', 'run', undefined],
  ['whole/model', 'model', undefined],
  ['begun', 'run', undefined],
  ['model', 'model', undefined],
  ['gone', 'elsewhere', undefined],
])('the directory %s is %s', (name, kind, adapter) => {
  expect(namedModel(at(name))).toEqual({
    name: at(name),
    kind,
    ...(adapter ? { adapter: at(adapter) } : {}),
  });
});

it('a judge of the package is an adapter', async () => {
  const judge = savedModel('word-problems-judge');
  expect(judge).toMatchObject({ kind: 'package', adapter: expect.stringMatching(/word-problems-judge$/) });
  expect(judge.card?.judge?.kind).toBe('verdict');
  expect(judge.directory).toBe(savedModel('word-problems-attempts').directory);
  expect(judge.tokenizer).toBe(judge.directory);
  for (const name of ['word-problems', 'word-problems-judge', at('run')])
    expect(await resolveSaved(name)).toEqual(savedModel(name));
});

it('a run that trained every weight is its model; one without a model says how to go on', async () => {
  expect((await resolveSaved(at('whole'))).directory).toBe(at('whole/model'));
  await expect(resolveSaved(at('begun'))).rejects.toThrow(
    /neither adapter\/ nor model\/: its training has not ended/,
  );
  await expect(resolveSaved(at('gone'))).rejects.toThrow(`there is no ${at('gone')}`);
});

it('an adapter is put on the model that is named, with a tokenizer of its own where it has one', async () => {
  const adapter = at('run/adapter');
  expect(await resolveSaved('word-problems', { adapter: at('run') })).toMatchObject({
    adapter,
    kind: 'package',
  });
  await expect(resolveSaved('embedded', { adapter })).rejects.toThrow(
    /was trained on word-problems, and embedded is another model/,
  );
  expect(await resolveSaved('embedded', { adapter, otherBase: true })).toMatchObject({ adapter });
  writeFileSync(at('run/adapter/tokenizer.json'), '{}');
  expect((await resolveSaved(at('run'))).tokenizer).toBe(adapter);
  expect((await resolveSaved(at('run'), { tokenizer: 'bytes' })).tokenizer).toBe('bytes');
});

it('an adapter, and a run with one, know their base', () => {
  const base = savedModel('word-problems').directory;
  for (const name of ['run', 'run/adapter']) expect(savedModel(at(name)).directory).toBe(base);
});

it('the one default holds where nothing is named; a run is taken as one however it is named', () => {
  expect(withModel({})).toEqual({ model: DEFAULT_MODEL });
  expect(withModel({}, 'word-problems-judge')).toEqual({ model: 'word-problems-judge' });
  expect(withModel({ adapter: 'x' })).toEqual({ adapter: 'x' });
  expect(withModel({ model: 'embedded' })).toEqual({ model: 'embedded' });
  for (const given of [{ run: at('run') }, { model: at('run') }, { 'run-or-model': at('run') }])
    expect(withModel(given)).toMatchObject({ run: at('run') });
  expect(withModel({ 'run-or-model': at('model') })).toMatchObject({ model: at('model') });
  // A tokenizer or an adapter of one's own is for the weights alone.
  expect(withModel({ model: at('whole'), tokenizer: 'bytes' })).toMatchObject({ model: at('whole') });
});
