// Whether an adapter was trained on a base that is a GGUF file.
import { copyFileSync, cpSync, existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, vi } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { baseDirectory } from '../../src/models/base.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { saveGguf } from '../../src/models/save-gguf.js';
import { resolveSaved } from '../../src/run/resolve-saved.js';
import { foreignBase } from '../../src/run/trained-on.js';
import { openDevice } from '../../src/runtime/device.js';
import { cli } from '../cli/run-cli.js';
import { changedAdapter, changedModel } from '../models/changed-model.js';
import { writeTokenizer } from '../models/gguf-tokenizer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
const at = (path: string) => join(folder, path);
const base = () => at('base.gguf');
const adapter = () => at('adapter');

/** An adapter that says it was trained on base.gguf, and that file merged with it as merged.gguf. */
beforeEach(async () => {
  folder = temporaryDirectory();
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  const model = await changedModel('qwen2', { dtype: 'BF16' });
  writeTokenizer(model, 'qwen2');
  await saveGguf(model, base(), 'BF16');
  cpSync(changedAdapter('qwen2', { base_model_name_or_path: base() }), adapter(), { recursive: true });
  const merged = await cli('merge', base(), adapter(), at('merged.gguf'), '--no-check');
  expect([merged.code, merged.stderr]).toEqual([0, '']);
});

it('refuses the same model with the adapter in it, which has the same shape', async () => {
  const again = await cli('merge', at('merged.gguf'), adapter(), at('twice.gguf'), '--no-check');
  expect(again.stderr).toMatch(
    /adapter was trained on .*base\.gguf, and .*merged\.gguf is another model; .* --other-base$/,
  );
  expect([again.code, existsSync(at('twice.gguf'))]).toEqual([1, false]);
  await expect(resolveSaved(at('merged.gguf'), { adapter: adapter() })).rejects.toThrow('is another model');
  // A server knows of its model the directory in the cache alone.
  const served = baseDirectory(at('merged.gguf'));
  expect((await foreignBase(adapter(), served, served)).refusal).toMatch(/merged\.gguf is another model$/);
});

it('is asked by programs that load or merge too', async () => {
  using device = openDevice('cpu');
  const sentence =
    /adapter was trained on .*base\.gguf, and .*merged\.gguf is another model; .* set otherBase: true$/;
  const merged = at('merged.gguf');
  await expect(loadModel(device, merged, { adapter: adapter() })).rejects.toThrow(sentence);
  await expect(mergeAdapter(device, merged, adapter(), at('twice'))).rejects.toThrow(sentence);
  (await loadModel(device, merged, { adapter: adapter(), otherBase: true })).dispose();
  (await loadModel(device, base(), { adapter: adapter() })).dispose();
  await mergeAdapter(device, merged, adapter(), at('twice'), { otherBase: true });
});

it('takes the file, a copy of another name, and the file moved', async () => {
  const own = (path: string) => foreignBase(adapter(), path, baseDirectory(path));
  copyFileSync(base(), at('copy.gguf'));
  for (const path of [base(), at('copy.gguf'), baseDirectory(base())]) expect(await own(path)).toEqual({});
  renameSync(base(), at('cache/base.gguf'));
  expect(await own(at('cache/base.gguf'))).toEqual({});
  expect((await own(at('copy.gguf'))).warning).toMatch(/base\.gguf, which is not here, and .*copy\.gguf has/);
});

it('knows the file by an adapter that names the directory in the cache', async () => {
  const config = JSON.parse(readFileSync(at('adapter/adapter_config.json'), 'utf8'));
  const named = { ...config, base_model_name_or_path: baseDirectory(base()) };
  writeFileSync(at('adapter/adapter_config.json'), JSON.stringify(named));
  const own = (path: string) => foreignBase(adapter(), path, baseDirectory(path));
  expect(await own(base())).toEqual({});
  expect((await own(at('merged.gguf'))).refusal).toMatch(/trained on .*\/base\.gguf, and .*merged\.gguf is/);
  renameSync(base(), at('cache/base.gguf'));
  expect(await own(at('cache/base.gguf'))).toEqual({});
});
