// Where no row is held out there is nothing to measure: the end of a run says so, and its log has no number.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { train } from '../../src/methods/run.js';
import { TINY } from '../methods/reward/tiny-model.js';

let folder: string;
const said: string[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-none-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  vi.spyOn(console, 'error').mockImplementation((text) => said.push(String(text)));
});
afterAll(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const trained = async (config: object, name: string) => {
  said.length = 0;
  const output = join(folder, name);
  const run = { device: 'cpu', threads: 1 };
  expect((await train({ ...config, run } as never, { output })).status).toBe('finished');
  const log = readFileSync(join(output, 'metrics.jsonl'), 'utf8').trim().split('\n');
  const last = log.map((line) => JSON.parse(line)).find(({ phase }) => phase === 'test');
  return { last, summary: said.find((line) => line.startsWith('held-out')) };
};

const pretrain = (split: number[]) => ({
  method: 'pretrain',
  model: { base: { init: TINY }, tokenizer: 'bytes' },
  data: { source: 'arithmetic', arithmetic: { samples: 20 }, max_length: 200, split },
  pretrain: { max_steps: 1, tokens_per_step: 400, micro_batch_tokens: 400 },
});

test('pretrain', async () => {
  const none = await trained(pretrain([9, 0, 1]), 'none');
  expect(none.summary).toBe(
    'held-out answers: there are none in the validation part, so nothing was measured',
  );
  expect(none.last).not.toHaveProperty('validation_token_accuracy');
  expect(none.last).not.toHaveProperty('validation_loss');
  const emptyTest = (line: string) => line.startsWith('the test part is empty');
  expect(said.filter(emptyTest)).toEqual([]);
  expect(
    said.filter((line) =>
      /^the validation part is empty: .*give more rows, name data\.validation/.test(line),
    ),
  ).toHaveLength(1);
  await trained(pretrain([9, 1, 0]), 'no-test');
  expect(said.filter(emptyTest)).toHaveLength(1);

  const some = await trained(pretrain([5, 5, 1]), 'some');
  expect(some.summary).toMatch(/^held-out answers: \d+\.\d\d % of tokens right, loss [1-9]\d*\.\d{4}$/);
  // The line is of the test part.
  expect(Object.keys(some.last)).toEqual(['step', 'phase', 'validation_token_accuracy', 'validation_loss']);
  expect(some.last.validation_loss).toBeGreaterThan(0);
});

test('solution_sft', async () => {
  const rows = [1, 2, 3].map((a) => ({ prompt: `${a}+1=`, completion: `${a + 1}\n` }));
  const file = join(folder, 'rows.jsonl');
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  const none = await trained(
    {
      method: 'solution_sft',
      lora: { r: 2 },
      data: { train: file, split: [1000, 1, 1], max_length: 512 },
      solution_sft: { max_steps: 1 },
    },
    'sft',
  );
  expect(none.summary).toBe('held-out answers: there are none in the test part, so nothing was measured');
  expect(none.last).not.toHaveProperty('held_out_loss');
});
