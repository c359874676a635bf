// What a run keeps of its mixture, and what its plan says of it.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { train } from '../../src/methods/run.js';
import { methodOf } from '../../src/methods/table.js';
import { describeRun } from '../../src/train/plan/dry-run.js';
import { tinySft } from './tiny-sft.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-mixture-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
});
afterAll(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const rows = (name: string, count: number, wrong: number) => {
  const lines = Array.from({ length: count }, (_, i) =>
    JSON.stringify({ problem: `${name} ${i}`, steps: [`1 + ${i} = 2`], labels: [i < wrong ? 0 : 1] }),
  );
  const path = join(folder, `${name}.jsonl`);
  writeFileSync(path, lines.join('\n'));
  return path;
};

test('eval.json has the counts of each file, and the plan says them with what is wrong', async () => {
  const data = {
    source: 'auto',
    max_length: 512,
    train: [
      { path: rows('few', 12, 12), share: 1 },
      { path: rows('many', 40, 0), share: 3 },
    ],
    validation: rows('valid', 4, 2),
    test: rows('few', 12, 12),
    on_overlap: 'skip',
  };
  await expect(train(tinySft({ data }), { output: join(folder, 'none') })).rejects.toThrow(
    /few\.jsonl has a share of 1 in data\.train and no solution for training: its 12 are of problems/,
  );
  const config = tinySft({ data: { ...data, test: rows('test', 4, 2) }, sft: { max_steps: 1 } });
  expect((await train(config, { output: join(folder, 'run') })).status).toBe('finished');
  const { data: kept } = JSON.parse(readFileSync(join(folder, 'run', 'eval.json'), 'utf8'));
  const nothing = { overlapping: 0 };
  expect(kept.mixture).toEqual([
    { files: [join(folder, 'few.jsonl')], solutions: 12, share: 0.25, labelled: 12, wrong: 12, ...nothing },
    { files: [join(folder, 'many.jsonl')], solutions: 36, share: 0.75, labelled: 36, wrong: 0, ...nothing },
  ]);

  const twice = completeRunConfig({
    ...config,
    data: { ...data, on_overlap: 'warn' },
  } as never);
  const method = methodOf(twice);
  const { lines } = await describeRun({ ...method, ...(await method.load()) }, twice, { planFor: 2 ** 33 });
  expect(lines).toContain(
    '  few.jsonl: 12 solutions, 25.0 % of the mixture, 12 labelled steps, of which wrong 12 (100.0 %)',
  );
  expect(lines).toContainEqual(
    expect.stringMatching(/^Warning: 8 test problems are also trained on, such as "few \d+"$/),
  );
});
