// `steptrain run` as a user starts it: the compiled program, a real run directory, kills and resumes.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sharedPath } from '../shared.js';
import { compiled, type Ended, metrics, steptrain, tensors } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-run-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const FEW = [
  '--set',
  'data.arithmetic.samples=120',
  '--set',
  'sft.tokens_per_step=512',
  '--set',
  'sft.micro_batch_tokens=256',
  '--set',
  'sft.num_train_epochs=1',
];

const METRICS = ['n', 'f1_macro', 'f1_pos', 'f1_neg', 'acc_pos', 'acc_neg', 'balanced_accuracy'];

const trained = (run: string) => tensors(join(run, 'adapter', 'adapter_model.safetensors'));

describe.skipIf(!compiled)('steptrain run (needs dist/: npm run build)', () => {
  test('the built-in example trains, prints the table and writes eval.json', async () => {
    const run = join(folder, 'example');
    const { code, out, err } = await steptrain([
      'run',
      '--output',
      run,
      ...FEW,
      '--set',
      'data.word_problems.samples=600',
      '--set',
      'verdict_ppo.max_iterations=2',
    ]);
    expect(err).toMatch(/Done after \d+ steps/);
    expect(code).toBe(0);
    expect(out).toMatch(/F1 macro/);
    const report = JSON.parse(await readFile(join(run, 'eval.json'), 'utf8')) as Record<string, never>;
    expect(Object.keys(report)).toEqual(expect.arrayContaining(['method', 'data', 'metrics', 'baselines']));
    expect(Object.keys(report.metrics!)).toEqual(expect.arrayContaining(METRICS));
    for (const baseline of Object.values(report.baselines!)) {
      expect(Object.keys(baseline as object)).toEqual(expect.arrayContaining(METRICS));
    }
    expect(existsSync(join(run, 'adapter', 'adapter_config.json'))).toBe(true);
    expect((await metrics(run)).length).toBeGreaterThan(0);
  });

  test('a small Qwen3.5 learns from random weights to judge, and judges', async () => {
    const run = join(folder, 'qwen3.5');
    const { code, err } = await steptrain(['run', 'quickstart_qwen3.5', '--output', run, ...FEW]);
    expect(err).toMatch(/Done after \d+ steps/);
    expect(code).toBe(0);
    const config = JSON.parse(await readFile(join(run, 'model', 'config.json'), 'utf8'));
    expect(config).toMatchObject({ model_type: 'qwen3_5_text', architectures: ['Qwen3_5ForCausalLM'] });
    const problem = join(folder, 'problem.txt');
    await writeFile(problem, '12; -6; +7\n\n12-6=6\n6+7=12\n');
    const judged = await steptrain(['judge', problem, '--model', run]);
    expect(judged.code, judged.err).toBe(0);
    expect(judged.out).toMatch(/1 +\S+ +\S+ +12-6=6\n +2 +\S+ +\S+ +6\+7=12/);
  });

  test('a run that is interrupted, killed and resumed ends with the same bits', async () => {
    const settings = [...FEW, '--set', 'sft.save_steps=2', '--set', 'run.logging_steps=1'];
    const whole = join(folder, 'whole');
    expect((await steptrain(['run', 'quickstart_sft', '--output', whole, ...settings])).code).toBe(0);

    const broken = join(folder, 'broken');
    const first = await steptrain(['run', 'quickstart_sft', '--output', broken, ...settings], (err) =>
      /step [1-9]/.test(err) ? 'SIGINT' : undefined,
    );
    expect(first.code).toBe(130);
    const killed = await steptrain(['run', '--resume', broken], (err) =>
      /step \d/.test(err) ? 'SIGKILL' : undefined,
    );
    expect(killed.code === null || killed.code === 0).toBe(true);
    const last = await steptrain(['run', '--resume', broken]);
    expect(last.err).toMatch(/Done after/);
    expect(await metrics(broken)).toEqual(await metrics(whole));
    expect(trained(broken)).toEqual(trained(whole));
  });

  test('a run of episodes that is interrupted, killed and resumed ends with the same bits and samples', async () => {
    const settings = Object.entries({
      'data.word_problems.samples': 60,
      'ppo.max_iterations': 6,
      'ppo.eval_steps': 3,
      'ppo.save_steps': 2,
      'run.logging_steps': 1,
      'run.threads': 1,
    }).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
    const start = (output: string) => ['run', 'quickstart_turns', '--output', output, ...settings];
    const whole = join(folder, 'whole-turns');
    expect((await steptrain(start(whole))).code).toBe(0);

    const broken = join(folder, 'broken-turns');
    const first = await steptrain(start(broken), (err) =>
      /ppo step [1-9]/.test(err) ? 'SIGINT' : undefined,
    );
    expect(first.code).toBe(130);
    // The second time without a word, in the middle of episodes.
    const killed = await steptrain(['run', '--resume', broken], (err) =>
      /ppo step [3-9]/.test(err) ? 'SIGKILL' : undefined,
    );
    expect(killed.code).toBe(null);
    const last = await steptrain(['run', '--resume', broken]);
    expect(last.err).toMatch(/Done after/);
    expect(await metrics(broken)).toEqual(await metrics(whole));
    const [weights, samples] = ['model/model.safetensors', 'samples.jsonl'];
    expect(tensors(join(broken, weights))).toEqual(tensors(join(whole, weights)));
    const episodes = await readFile(join(whole, samples), 'utf8');
    expect(episodes).toContain('"turn_rewards":[');
    expect(await readFile(join(broken, samples), 'utf8')).toBe(episodes);
  });

  test('a run whose time is up saves a checkpoint, and ends with the same bits after a resume', async () => {
    const settings = [...FEW, '--set', 'data.arithmetic.samples=2000'];
    const whole = join(folder, 'in-time');
    expect((await steptrain(['run', 'quickstart_sft', '--output', whole, ...settings])).code).toBe(0);

    // The first of these time limits in which this machine starts training but does not finish.
    let limited = '';
    let first: Ended | undefined;
    let minutes = '';
    for (minutes of ['0.02', '0.06', '0.2']) {
      limited = join(folder, `out-of-time-${minutes}`);
      const limit = ['--set', `run.max_minutes=${minutes}`];
      first = await steptrain(['run', 'quickstart_sft', '--output', limited, ...settings, ...limit]);
      if (!/Stopped after (sft )?step 0[,/]/.test(first.err)) break;
    }
    expect(first?.err).toMatch(
      /Stopped after sft step \d+\/\d+, as run.max_minutes says.* (?:npx steptrain|node \S+) run --resume .*out-of-time/,
    );
    expect(first?.code).toBe(0);
    expect(trained(limited).size).toBe(trained(whole).size);
    expect(existsSync(join(limited, 'eval.json'))).toBe(false);

    const config = join(limited, 'config.yaml');
    const text = await readFile(config, 'utf8');
    await writeFile(config, text.replace(`max_minutes: ${minutes}`, 'max_minutes: 0'));
    const last = await steptrain(['run', '--resume', limited]);
    expect(last.err).toMatch(/Done after/);
    expect(trained(limited)).toEqual(trained(whole));
    const memory = JSON.parse(await readFile(join(limited, 'memory.json'), 'utf8'));
    // Packed weights are padded a little, and the plan includes the AdamW moments of trained roles.
    expect(memory.held_bytes.base / memory.planned_bytes.base).toBeCloseTo(1, 1);
    expect(memory.held_bytes.policy / memory.planned_bytes.policy).toBeCloseTo(0.5, 1);
  });

  const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
  test.skipIf(!prm800k)(
    'real PRM800K with the real tokenizer (skipped where the shared data is absent)',
    async () => {
      const run = join(folder, 'prm800k');
      const { code, out, err } = await steptrain([
        'run',
        'tiny_prm800k_sft',
        '--output',
        run,
        '--set',
        `data.train=${prm800k}`,
        '--set',
        'sft.max_steps=2',
        '--set',
        'eval.max_samples=20',
      ]);
      expect(err).toMatch(/Done after 2 steps/);
      expect(code).toBe(0);
      expect(out).toMatch(/F1 macro/);
      const report = JSON.parse(await readFile(join(run, 'eval.json'), 'utf8')) as { metrics: { n: number } };
      expect(report.metrics.n).toBeGreaterThan(50);
    },
  );
});
