import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadDecoder } from '../../src/models/load.js';
import { readWeight } from '../../src/models/save.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { compiled } from '../e2e/program.js';
import { openTest } from '../ops/devices.js';

const SCRIPT = fileURLToPath(new URL('../../scripts/random-model.mjs', import.meta.url));

describe.skipIf(!compiled)('random-model.mjs (needs dist/: npm run build)', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-random-'));
    execFileSync(process.execPath, [SCRIPT, 'tiny', folder]);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('writes a model with normal weights, unit norms and the tokenizer of the embedded one', async () => {
    const device = openTest();
    try {
      const decoder = await loadDecoder(device, folder, { dtype: 'f32' });
      const values = await readWeight(decoder, 'model.embed_tokens.weight');
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      const deviation = Math.sqrt(
        values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length,
      );
      expect(values.length).toBe(512 * 64);
      expect(Math.abs(mean)).toBeLessThan(5e-4);
      expect(Math.abs(deviation / 0.02 - 1)).toBeLessThan(0.03);
      expect(new Set(values).size).toBeGreaterThan(1000);
      expect(new Set(await readWeight(decoder, 'model.norm.weight'))).toEqual(new Set([1]));
      const other = await readWeight(decoder, 'model.layers.0.mlp.up_proj.weight');
      expect(other.slice(0, 64)).not.toEqual(values.slice(0, 64));
    } finally {
      device.dispose();
    }
    const tokenizer = await loadTokenizer(folder);
    expect(tokenizer.vocabSize).toBeLessThan(512);
  });
});
