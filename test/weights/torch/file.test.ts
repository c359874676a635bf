import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readModelConfig } from '../../../src/architectures/table.js';
import { openDecoderWeights } from '../../../src/models/load.js';
import { openSafetensors } from '../../../src/weights/safetensors.js';
import { openTorch } from '../../../src/weights/torch/file.js';
import { goldenPath } from '../golden.js';
import { temporaryDirectory } from '../temporary-directory.js';

type Expected = Record<string, { dtype: string; shape: number[]; bytes: string }>;

describe('openTorch', () => {
  const expected: Expected = JSON.parse(readFileSync(goldenPath('torch/mixed.json'), 'utf8'));

  it('reads every dtype, views, shared storages, parameters and empty tensors as torch does', () => {
    const file = openTorch(goldenPath('torch/mixed.bin'));
    expect([...file.tensors.keys()]).toEqual(Object.keys(expected));
    for (const [name, { dtype, shape, bytes }] of Object.entries(expected)) {
      const wanted = Buffer.from(bytes, 'base64');
      expect(file.tensors.get(name)).toMatchObject({ dtype, shape, begin: 0, end: wanted.length });
      expect(Buffer.from(file.read(name)).equals(wanted), name).toBe(true);
    }
    expect(() => file.read('other')).toThrow(/there is no tensor "other"/);
    file.close();
    file.close();
    expect(() => file.read('plain')).toThrow(/the file has been closed/);
  });

  it('reads a model whose shards name the trunk alone', () => {
    const directory = temporaryDirectory();
    for (const name of readdirSync(goldenPath('torch/opt')))
      copyFileSync(join(goldenPath('torch/opt'), name), join(directory, name));
    copyFileSync(goldenPath('opt/config.json'), join(directory, 'config.json'));
    const weights = openDecoderWeights(directory, readModelConfig(directory));
    const wanted = openSafetensors(goldenPath('opt/model.safetensors'));
    for (const name of weights.tensors.keys())
      expect(Buffer.compare(weights.read(name), wanted.read(name)), name).toBe(0);
    expect(weights.tensors.size).toBe(
      [...wanted.tensors.keys()].filter((name) => name !== 'lm_head.weight').length,
    );
    weights.close();
    wanted.close();
  });
});
