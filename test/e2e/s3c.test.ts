// `method: s3c` as a user starts it: records with corrections in, a model out, the same bits after an interruption.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, metrics, steptrain, tensors } from './program.js';

let folder: string;
let recipe: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-s3c-'));
  const data = join(folder, 'step.jsonl');
  const rows = Array.from({ length: 80 }, (_, i) => {
    const step = (text: string, kind = 'normal') => ({ text, kind, label: kind === 'wrong' ? 0 : 1 });
    const wrong = [step(`${i}+1=${i + 2}`, 'wrong'), step('count again', 'reflection')];
    const right = step(`${i}+1=${i + 1}`, i % 4 === 0 ? 'normal' : 'improvement');
    return { problem: `${i}+1?`, steps: [...(i % 4 === 0 ? [] : wrong), right, step(`Answer: ${i + 1}`)] };
  });
  await writeFile(data, rows.map((row) => JSON.stringify(row)).join('\n'));
  recipe = join(folder, 'small.yaml');
  await writeFile(
    recipe,
    `method: s3c
model:
  tokenizer: bytes
  base: {init: {hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2}}
lora: none
data: {train: ${data}, source: record, max_length: 100}
format: {template: "{problem}\\n", reflection: "Wait: {text}"}
s3c: {learning_rate: 1e-2, num_train_epochs: 4, tokens_per_step: 512, micro_batch_tokens: 256, save_steps: 2}
run: {device: cpu, threads: 1, logging_steps: 1}
`,
  );
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(!compiled)('method: s3c (needs dist/: npm run build)', () => {
  test('trains on records with corrections; interrupted and resumed it ends with the same bits', async () => {
    const whole = join(folder, 'whole');
    const { code, err } = await steptrain(['run', recipe, '--output', whole]);
    expect(err).toMatch(/Done after \d+ steps/);
    expect(code).toBe(0);
    const lines = await metrics(whole);
    const losses = lines.flatMap(({ loss }) => (typeof loss === 'number' ? [loss] : []));
    expect(losses.at(-1)!).toBeLessThan(losses[0]! / 1.5);

    const broken = join(folder, 'broken');
    const first = await steptrain(['run', recipe, '--output', broken], (text) =>
      /step [3-9]/.test(text) ? 'SIGINT' : undefined,
    );
    expect([0, 130]).toContain(first.code);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    const weights = (run: string) => tensors(join(run, 'model', 'model.safetensors'));
    expect(weights(broken)).toEqual(weights(whole));
  });

  test('a mask, a control and the share of clean solutions change what is learned', async () => {
    const learned = async (...settings: string[]) => {
      const run = join(folder, `run-${settings.join('-')}`);
      const set = ['s3c.max_steps=1', 's3c.tokens_per_step=100000', ...settings].flatMap((each) => [
        '--set',
        each,
      ]);
      const { code, err } = await steptrain(['run', recipe, '--output', run, ...set]);
      expect(code, err).toBe(0);
      return (await metrics(run)).find(({ targets }) => targets)!.targets as unknown as number;
    };
    const step = await learned();
    expect(await learned('s3c.mask=none')).toBeGreaterThan(step);
    expect(await learned('s3c.mask=wrong_step_and_prompt')).toBe(step);
    expect(await learned('s3c.variant=oversample')).toBeLessThan(step);
    expect(await learned('s3c.clean_ratio=0')).toBeLessThan(step);
    expect(await learned('s3c.clean_ratio=1')).toBeGreaterThan(step);
  });

  test('makes the samples itself, evaluates, and interrupted in the making ends with the same bits', async () => {
    const few = [
      'data.word_problems.samples=60',
      'corrections.chunk=12',
      'corrections.validate.k=1',
      's3c.max_steps=2',
      'run.threads=1',
    ];
    const small = [
      'eval.max_samples=6',
      'eval_sampling.num_samples=3',
      'eval_sampling.max_new_tokens=60',
      ...few,
    ];
    const settings = small.flatMap((each) => ['--set', each]);
    const whole = join(folder, 'made');
    const { code, out, err } = await steptrain(['run', 'quickstart_s3c', '--output', whole, ...settings]);
    expect(code, err).toBe(0);
    expect(`${out}${err}`).toMatch(/after \d+ held-out steps, % +wrong +right/);
    const samples = await readFile(join(whole, 'artefacts', 'samples.jsonl'), 'utf8');
    expect(samples).toContain('"kind":"wrong"');
    const last = (await metrics(whole)).at(-1)!;
    for (const key of ['pass@1', 'validation_pass@1', 'maj@3', 'correction_rate'])
      expect(last).toHaveProperty(key);
    const report = JSON.parse(await readFile(join(whole, 'eval.json'), 'utf8'));
    expect(report).toMatchObject({
      method: 's3c',
      unit: 'problems',
      metrics: { 'pass@1': last['pass@1'], 'maj@3': last['maj@3'], trigger_rate: last.trigger_rate },
      metrics_validation: { 'pass@1': last['validation_pass@1'] },
      models: { trained: { all: { 'pass@1': { value: last['pass@1'] } } } },
    });
    expect(report.metrics.standing_wrong_steps).toBe(last.wrong_steps);
    const shown = await steptrain(['eval', 'show', whole]);
    expect(shown.out).toMatch(/after \d+ held-out steps, % +wrong +right/);
    // The same problems by eval solve, which reads the run's words of corrections.
    const problems = join(folder, 'problems.jsonl');
    await steptrain(['data', 'problems', problems, '--level', '1', '--count', '4']);
    const solved = join(folder, 'solved');
    const short = ['--max-new-tokens', '60', '--judge', 'oracle', '--output', solved];
    const solve = await steptrain(['eval', 'solve', problems, '--model', whole, ...short]);
    expect(solve.code, solve.err).toBe(0);

    const broken = join(folder, 'broken-making');
    const first = await steptrain(['run', 'quickstart_s3c', '--output', broken, ...settings], (text) =>
      /corrections step 1/.test(text) ? 'SIGINT' : undefined,
    );
    expect([0, 130]).toContain(first.code);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    expect(await readFile(join(broken, 'artefacts', 'samples.jsonl'), 'utf8')).toBe(samples);
    const weights = (run: string) => tensors(join(run, 'model', 'model.safetensors'));
    expect(weights(broken)).toEqual(weights(whole));
  });

  test('refuses a format that no correction is recognised by', async () => {
    const { code, err } = await steptrain(['run', recipe, '--set', 'format.reflection={text}']);
    expect(code).toBe(1);
    expect(err).toMatch(
      /format\.reflection is "\{text\}" alone; a correction is recognised by the words around it/,
    );
  });
});
