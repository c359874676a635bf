// A run whose sequences may be longer than its base reads is refused before anything is made.

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { train } from '../../src/methods/run.js';
import { methodOf } from '../../src/methods/table.js';
import { describeRun } from '../../src/train/dry-run.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-length-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

test.each(['implicit_prm', 'dpo'])('%s on a base that reads 512 tokens', async (method) => {
  const file = join(folder, 'pairs.jsonl');
  const rows = [1, 2, 3].flatMap((a) => [
    { prompt: `${a}+1=`, completion: `${a + 1}\n`, label: true },
    { prompt: `${a}+1=`, completion: `${a}\n`, label: false },
  ]);
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  const input = { method, data: { train: file, max_length: 513 }, run: { device: 'cpu', threads: 1 } };
  const refusal =
    'data.max_length is 513, and model.base embedded reads at most 512 tokens; set data.max_length to 512 or less';
  const config = completeRunConfig(input as never);
  const row = methodOf(config);
  await expect(describeRun({ ...row, ...(await row.load()) }, config)).rejects.toThrow(refusal);
  const output = join(folder, method);
  await expect(train(input as never, { output })).rejects.toThrow(refusal);
  expect(existsSync(output)).toBe(false);
});
