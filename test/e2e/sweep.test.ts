// `steptrain sweep` as a user starts it: the compiled program, stopped by Ctrl-C and started again.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, metrics, steptrain } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-sweeps-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const file = async (name: string) => {
  const path = join(folder, `${name}.yaml`);
  const content = `
recipe: quickstart_sft
output_dir: ${JSON.stringify(join(folder, name))}
set: { data.arithmetic.samples: 60, sft.num_train_epochs: 2, sft.tokens_per_step: 256, sft.micro_batch_tokens: 256, run.logging_steps: 1 }
arms:
  low: { set: { lora.r: 2 } }
  high: { set: { lora.r: 8 } }
seeds: [1]
compare_to: low
report: { F1 macro: metrics.f1_macro, loss: { key: log.sft.loss, unit: number } }
`;
  await writeFile(path, content);
  return path;
};

describe.skipIf(!compiled)('steptrain sweep (needs dist/: npm run build)', () => {
  test('a sweep stopped by Ctrl-C goes on, and ends with the same metrics', async () => {
    const whole = await steptrain(['sweep', await file('whole')]);
    expect(whole.err).toMatch(/low\/seed-1: finished/);
    expect(whole).toMatchObject({ code: 0, out: expect.stringMatching(/high − low/) });

    const page = join(folder, 'whole', 'report.html');
    expect(whole.err.trim().split('\n').at(-1)).toBe(page);
    const text = await readFile(page, 'utf8');
    for (const part of ['The sweep', 'Paired differences', 'seed 1: ', '<title>Sweep whole'])
      expect(text).toContain(part);

    const path = await file('broken');
    const command = ['sweep', path, '--output', join(folder, 'elsewhere')];
    const stopped = await steptrain([...command, '--jobs', '2'], (err) =>
      err.includes('started') ? 'SIGINT' : undefined,
    );
    expect(stopped.err).toContain(`Stopped. To go on: steptrain ${command.join(' ')}`);
    expect(stopped.code).toBe(130);
    const last = await steptrain(command);
    expect(last.code).toBe(0);
    const log = (name: string) => metrics(join(folder, name, 'high', 'seed-1'));
    expect(await log('elsewhere')).toEqual(await log('whole'));
    expect(existsSync(join(folder, 'elsewhere', 'low', 'seed-1.log'))).toBe(true);
    expect(existsSync(join(folder, 'broken'))).toBe(false);
    expect(await readFile(join(folder, 'elsewhere', 'sweep.md'), 'utf8')).toContain('one seed shows nothing');
  });
});
