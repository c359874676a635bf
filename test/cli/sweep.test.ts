// `steptrain sweep FILE --dry-run`, as a user starts it.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { cli } from './run-cli.js';

const folder = mkdtempSync(join(tmpdir(), 'steptrain-sweep-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('sweep --dry-run checks every run, and writes nothing', async () => {
  const file = join(folder, 'sweep.yaml');
  writeFileSync(
    file,
    `recipe: quickstart_sft
set: { data.arithmetic.samples: 20 }
output_dir: ${JSON.stringify(join(folder, 'runs'))}
arms:
  plain: {}
  tuned: { grid: { sft.learning_rate: [1.0e-4, 2.0e-4] } }
select: { on: val.score, seeds: [7] }
seeds: [1, 2]
report: { score: test.score }
`,
  );
  const ask = (...more: readonly string[]) => cli('sweep', file, '--dry-run', ...more);
  const { code, stdout, stderr } = await ask();
  expect([code, stdout.split('\n').slice(0, 4)]).toEqual([
    0,
    [
      'plain: quickstart_sft with data.arithmetic.samples=20',
      'tuned: quickstart_sft with data.arithmetic.samples=20',
      '  sft.learning_rate=0.0001',
      '  sft.learning_rate=0.0002',
    ],
  ]);
  expect(stdout).toMatch(/\n6 runs in .*: 2 select, 4 are reported .* 0 finished, 0 to go on with, 6 new\n/);
  expect([stdout, stderr]).toEqual([expect.stringContaining('\ntime: not known before'), '']);
  expect(existsSync(join(folder, 'runs'))).toBe(false);
  // What a run would refuse, the sweep refuses before the first.
  const refused = await ask('--set', 'sft.learning_rat=1');
  expect([refused.code, refused.stdout]).toEqual([1, '']);
  expect(refused.stderr).toMatch(/sft\.learning_rat/);
});
