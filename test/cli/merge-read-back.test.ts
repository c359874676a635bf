// `steptrain merge … FILE.gguf` reads back what it wrote: a file that holds another model in F32 is no result.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { GgufType } from '../../src/models/save-gguf.js';
import { changedModel } from '../models/changed-model.js';
import { writeTokenizer } from '../models/gguf-tokenizer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

/** A writer that forgets the base of the frequencies. */
vi.mock(import('../../src/models/save-gguf.js'), async (original) => {
  const { saveGguf, ...others } = await original();
  return {
    ...others,
    async saveGguf(directory: string, path: string, type: GgufType) {
      const file = join(directory, 'config.json');
      const text = readFileSync(file, 'utf8');
      const config = JSON.parse(text);
      writeFileSync(file, JSON.stringify({ ...config, rope_parameters: { rope_theta: 100 } }));
      await saveGguf(directory, path, type);
      writeFileSync(file, text);
    },
  };
});

it('is removed and refused where it is another model', async () => {
  const directory = await changedModel('qwen2', {});
  writeTokenizer(directory, 'qwen2');
  const path = join(temporaryDirectory(), 'model.gguf');
  const { code, stderr } = await cli('merge', directory, path, '--dtype', 'f32');
  expect(stderr).toMatch(/model\.gguf was another model than the one that was written, and is removed/);
  expect([code, existsSync(path)]).toEqual([1, false]);
});
