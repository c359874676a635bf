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
    expect(stopped.err).toMatch(/Stopped\. To go on: (?:npx steptrain|node \S+) sweep /);
    expect(stopped.err).toContain(command.join(' '));
    expect(stopped.code).toBe(130);
    const last = await steptrain(command);
    expect(last.code).toBe(0);
    const log = (name: string) => metrics(join(folder, name, 'high', 'seed-1'));
    expect(await log('elsewhere')).toEqual(await log('whole'));
    expect(existsSync(join(folder, 'elsewhere', 'low', 'seed-1.log'))).toBe(true);
    expect(existsSync(join(folder, 'broken'))).toBe(false);
    expect(await readFile(join(folder, 'elsewhere', 'sweep.md'), 'utf8')).toContain('one seed shows nothing');
  });

  test('arms begin from another, with its tokens or its reasons, on the same test steps', async () => {
    const output = join(folder, 'linked');
    const path = join(folder, 'linked.yaml');
    const content = `
recipe: quickstart
output_dir: ${JSON.stringify(output)}
set:
  data.word_problems.samples: 200
  data.rationales: 50
  eval_verdicts.likelihood: false
  eval.max_samples: 4
  run.threads: 1
  sft.max_steps: 8
  sft.eval_steps: 0
  verdict_ppo.max_iterations: 1
  verdict_ppo.rollout_batch: 24
  verdict_ppo.eval_steps: 0
arms:
  RFT: { from: warm-up, rationales: { k: 1, temperature: 0.7 }, tokens_of: StepAMC, set: { method: sft, sft.max_steps: -1 } }
  warm-up: { set: { method: sft } }
  StepAMC: {}
seeds: [1]
report: { steps: { key: metrics.n, unit: count }, tokens: { key: total_tokens, unit: count } }
`;
    await writeFile(path, content);
    const { code, err } = await steptrain(['sweep', path]);
    expect(code, err).toBe(0);
    const reports = await Promise.all(
      ['RFT', 'warm-up', 'StepAMC'].map(async (arm) =>
        JSON.parse(await readFile(join(output, arm, 'seed-1', 'eval.json'), 'utf8')),
      ),
    );
    const [rft, warm, stepamc] = reports.map(({ data }) => data.trained_tokens as number) as [
      number,
      number,
      number,
    ];
    expect(rft).toBeGreaterThanOrEqual(stepamc - warm);
    expect(rft).toBeLessThan(stepamc - warm + 1024);
    // The same held-out problems, whatever file the training part comes from.
    expect(new Set(reports.map(({ metrics }) => metrics.n)).size).toBe(1);
    const steps = async (arm: string) =>
      (await readFile(join(output, arm, 'seed-1', 'verdicts.jsonl'), 'utf8'))
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
        .map(({ problem, step }) => [problem, step]);
    expect(await steps('RFT')).toEqual(await steps('StepAMC'));
    const [first] = await metrics(join(output, 'RFT', 'seed-1'));
    expect(first?.f1_macro).toBe(reports[1].metrics_validation.f1_macro);
    // Only the fifty solutions keep a reason of the data: the others have the warm-up's, or none.
    const rows = (await readFile(join(output, 'RFT', 'rationales', 'seed-1', 'rationales.jsonl'), 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { steps: { rationale?: string }[] });
    const whole = rows.filter(({ steps }) => steps.every(({ rationale }) => rationale !== undefined));
    expect(whole.length).toBeGreaterThanOrEqual(50);
    expect(whole.length).toBeLessThan(rows.length);
    const again = await steptrain(['sweep', path]);
    expect(again.code, again.err).toBe(0);
    expect(again.err).not.toContain('started');
  });
});
