// A run whose sequences may be longer than its base reads is shortened to that, and says so.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { completeRunConfig, parseRunConfig } from '../../../src/methods/config.js';
import { train } from '../../../src/methods/run.js';
import { methodOf } from '../../../src/methods/table.js';
import { describeRun } from '../../../src/train/plan/dry-run.js';

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
  const notice =
    'data.max_length is 513, and model.base embedded reads at most 512 tokens: it is 512 in this run';
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const lines = () => said.mock.calls.map(([line]) => line);
  try {
    const config = completeRunConfig(input as never);
    const row = methodOf(config);
    await describeRun({ ...row, ...(await row.load()) }, config);
    expect(lines()).toContain(notice);
    said.mockClear();
    const output = join(folder, method);
    await train({ ...input, [method]: { max_steps: 1 } } as never, { output });
    expect(lines()).toContain(notice);
    const saved = parseRunConfig(readFileSync(join(output, 'config.yaml'), 'utf8'), { name: 'config.yaml' });
    expect(saved.config.data.max_length).toBe(512);
  } finally {
    said.mockRestore();
  }
});
