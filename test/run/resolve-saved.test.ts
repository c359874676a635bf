// What a name of a model means to every command.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { withModel } from '../../src/cli/model-options.js';
import { baseOf, DEFAULT_MODEL, resolveJudge, resolveSaved } from '../../src/run/resolve-saved.js';
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
  expect(resolveSaved(name)).toEqual({ name, kind, ...(adapter ? { adapter } : {}) });
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
  expect(resolveSaved(at(name))).toEqual({
    name: at(name),
    kind,
    ...(adapter ? { adapter: at(adapter) } : {}),
  });
});

it('of the package, a judge is an adapter, and its base stands for it where a judge is meant', () => {
  const judge = resolveSaved('word-problems-judge');
  expect(judge).toMatchObject({ kind: 'package', adapter: expect.stringMatching(/word-problems-judge$/) });
  expect(baseOf(judge)).toBe(baseOf(resolveSaved('word-problems')));
  expect(resolveJudge('word-problems')).toEqual(judge);
  for (const name of ['embedded', at('run'), 'owner/name'])
    expect(resolveJudge(name)).toEqual(resolveSaved(name));
});

it('an adapter, and a run with one, know their base', () => {
  const base = baseOf(resolveSaved('word-problems'));
  for (const name of ['run', 'run/adapter']) expect(baseOf(resolveSaved(at(name)))).toBe(base);
});

it('the one default holds where nothing is named; a run is taken as one however it is named', () => {
  expect(withModel({})).toEqual({ model: DEFAULT_MODEL });
  expect(withModel({ adapter: 'x' })).toEqual({ adapter: 'x' });
  expect(withModel({ model: 'embedded' })).toEqual({ model: 'embedded' });
  for (const given of [{ run: at('run') }, { model: at('run') }, { 'run-or-model': at('run') }])
    expect(withModel(given)).toMatchObject({ run: at('run') });
  expect(withModel({ 'run-or-model': at('model') })).toMatchObject({ model: at('model') });
  // A tokenizer or an adapter of one's own is for the weights alone.
  expect(withModel({ model: at('whole'), tokenizer: 'bytes' })).toMatchObject({ model: at('whole') });
});
