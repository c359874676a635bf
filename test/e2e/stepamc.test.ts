// StepAMC as a user starts it: all phases, all ways to stop it, and the runs that it is compared with.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { foreignSteps } from '../../src/scoring/verdict/step-forms.js';
import { repetitions } from '../repetitions.js';
import { compiled, lastCheckpoint, metrics, steptrain, tensors } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-stepamc-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const set = (values: Readonly<Record<string, string | number>>) =>
  Object.entries(values).flatMap(([key, value]) => ['--set', `${key}=${value}`]);

/** The example of generated arithmetic, shortened to seconds, with everything that has state. */
const SMALL = set({
  'data.arithmetic.samples': 240,
  'lora.r': 4,
  'lora.lora_dropout': 0.05,
  'sft.num_train_epochs': 1,
  'sft.tokens_per_step': 1024,
  'sft.micro_batch_tokens': 512,
  'sft.eval_steps': 3,
  'sft.save_steps': 2,
  'reward_network.num_train_epochs': 1,
  'reward_network.max_steps': 6,
  'reward_network.tokens_per_step': 1024,
  'reward_network.micro_batch_tokens': 'auto',
  'reward_network.eval_steps': 3,
  'reward_network.save_steps': 2,
  'reward_network.update': 'joint',
  'reward_network.center': 'running',
  'verdict_ppo.max_iterations': 3,
  'verdict_ppo.rollout_batch': 64,
  'verdict_ppo.num_mini_batches': 2,
  'verdict_ppo.micro_batch_tokens': 512,
  'verdict_ppo.eval_steps': 4,
  'verdict_ppo.save_steps': 3,
  'verdict_ppo.learning_rate': 1e-3,
  'run.logging_steps': 1,
  'eval.max_samples': 24,
});

/** @returns the directory of a run that ended well, with more settings */
async function ran(name: string, settings: readonly string[]): Promise<string> {
  const run = join(folder, name);
  const { code, err } = await steptrain([
    'run',
    'stepamc_arithmetic',
    '--output',
    run,
    ...SMALL,
    ...settings,
  ]);
  expect(code, err).toBe(0);
  return run;
}

/** Everything that must not depend on where a run was stopped. */
async function result(run: string) {
  return {
    metrics: await metrics(run),
    samples: await readFile(join(run, 'samples.jsonl'), 'utf8'),
    adapter: tensors(join(run, 'adapter', 'adapter_model.safetensors')),
    reward: tensors(join(run, 'reward', 'adapter_model.safetensors')),
    value: tensors(join(run, 'value_head.safetensors')),
    checkpoint: await lastCheckpoint(run),
    evaluation: JSON.parse(await readFile(join(run, 'eval.json'), 'utf8')),
  };
}

describe.skipIf(!compiled)('steptrain run: stepamc (needs dist/: npm run build)', () => {
  let whole: Awaited<ReturnType<typeof result>>;
  beforeAll(async () => {
    const run = join(folder, 'whole');
    const { code, err } = await steptrain(['run', 'stepamc_arithmetic', '--output', run, ...SMALL]);
    expect(err).toMatch(/Done after \d+ steps/);
    expect(code).toBe(0);
    whole = await result(run);
  });

  test('runs warm-up, reward network and policy, and evaluates before and after', () => {
    const phases = [...new Set(whole.metrics.map(({ phase }) => phase))];
    expect(phases).toEqual(['sft', 'reward_network', 'ppo', 'test']);
    const { method, data, metrics: after, metrics_unseen, baselines, reward_network } = whole.evaluation;
    expect(method).toBe('stepamc');
    for (const name of ['base', 'sft', 'reward_network']) expect(baselines[name].n).toBe(after.n);
    expect(data.seen_share).toBeGreaterThan(0);
    expect(Object.keys(metrics_unseen).sort()).toEqual(Object.keys(after).sort());
    expect(metrics_unseen.n).toBe(Math.round((1 - data.seen_share) * after.n));
    expect(reward_network.test.metrics).toEqual(baselines.reward_network);
    expect(reward_network.validation.calibration.ece).toBeGreaterThanOrEqual(0);
    expect(reward_network.test.pair_accuracy).toBeCloseTo(baselines.reward_network.accuracy, 12);
    const logged = whole.metrics.filter(
      ({ phase, policy_loss }) => phase === 'ppo' && policy_loss !== undefined,
    );
    for (const name of [
      ...[
        'value_loss',
        'constraint_loss',
        'alpha',
        'ratio_mean',
        'clip_fraction',
        'kl_k1',
        'kl_k3',
        'entropy',
      ],
      ...[
        'explained_variance',
        'reward_mean',
        'reward_std',
        'reward_margin',
        'acc_pos',
        'acc_neg',
        'grad_norm',
      ],
      ...['reward_network_loss', 'sampler_difference'],
    ]) {
      expect(
        logged.every((line) => Number.isFinite(line[name])),
        name,
      ).toBe(true);
    }
  });

  test('every stage is evaluated before its first step and ends with its best parameters', () => {
    for (const phase of ['sft', 'reward_network', 'ppo']) {
      const lines = whole.metrics.filter((line) => line.phase === phase);
      const metric = phase === 'reward_network' ? 'pair_accuracy' : 'f1_macro';
      const evaluated = lines.filter(({ balanced_accuracy }) => balanced_accuracy !== undefined);
      expect(evaluated[0]?.phase_step).toBe(0);
      const best = Math.max(...evaluated.map((line) => line[metric] as number));
      expect(lines.at(-1)?.[`best_${metric}`]).toBe(best);
    }
  });

  test('the built-in example runs too, and its table ends with a reading of it', async () => {
    const run = join(folder, 'quickstart');
    const { code, out, err } = await steptrain([
      ...['run', '--output', run],
      ...SMALL.map((setting) =>
        setting.replace('data.arithmetic.samples=240', 'data.word_problems.samples=120'),
      ),
    ]);
    expect(code, err).toBe(0);
    expect(out + err).toMatch(
      /Reading: on the \d+ (unseen )?steps stepamc by its verdicts alone has F1\s+macro/,
    );
    const { differences, likelihood, errors, words } = JSON.parse(
      await readFile(join(run, 'eval.json'), 'utf8'),
    );
    // So small a run teaches the words nothing: the likelihood alone is kept.
    expect(Object.keys(differences.to)).toEqual(['words', 'random']);
    expect(Object.keys(words.differences.to)).toEqual(['base', 'sft', 'random']);
    expect(Object.keys(words.errors)).toEqual(Object.keys(errors));
    // The adapter is kept as the judge of the table, which the base's likelihood makes good at once.
    const card = JSON.parse(await readFile(join(run, 'adapter', 'steptrain.json'), 'utf8'));
    expect(card.judge.likelihood).toEqual(likelihood.weights);
    expect(foreignSteps(['Tom: 12 + 7 = 19', '12 + 7 = 19', 'Answer: 19'], card.judge.forms)).toEqual([1]);
    const again = await steptrain(['eval', 'correction', run, '--output', join(folder, 'again')]);
    expect(again.code, again.err).toBe(0);
    const repeated = JSON.parse(await readFile(join(folder, 'again', 'eval.json'), 'utf8'));
    expect(repeated.likelihood).toEqual(likelihood);
    const verdictsOf = async (result: number) => {
      const file = join(folder, `${result}.json`);
      const problem = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
      const steps = [`Tom: 12 + 7 = ${result}`, `Answer: ${result}`];
      await writeFile(file, JSON.stringify({ problem, steps }));
      const { out } = await steptrain(['judge', run, file, '--json']);
      return (JSON.parse(out).steps as { verdict: string }[]).map(({ verdict }) => verdict);
    };
    expect(await verdictsOf(19)).toEqual(['right', 'right']);
    expect(await verdictsOf(18)).toEqual(['wrong', 'wrong']);
  });

  test('a rollout in the checkpoint lies beside state.json, in binary', async () => {
    const run = join(folder, 'rollout');
    const when = (err: string) => (/ppo step 1\//.test(err) ? ('SIGINT' as const) : undefined);
    await steptrain(
      ['run', 'stepamc_arithmetic', '--output', run, ...SMALL, ...set({ 'verdict_ppo.rollout_batch': 1000 })],
      when,
    );
    const checkpoint = await lastCheckpoint(run);
    const state = checkpoint['state.json'] as { own: { rollout: { groups: { rows: number } } } };
    expect(state.own.rollout.groups.rows).toBeGreaterThan(300);
    expect(JSON.stringify(state).length).toBeLessThan(10_000);
    expect(checkpoint).toHaveProperty(['state.safetensors']);
  });

  test('the first step of a rollout has a ratio of exactly 1 and a KL of 0', () => {
    const first = whole.metrics.find(({ phase, ratio_mean }) => phase === 'ppo' && ratio_mean !== undefined);
    expect(first).toMatchObject({ ratio_mean: 1, ratio_max: 1, old_kl_k3: 0, kl_k1: 0, kl_k3: 0 });
  });

  test('a run that a signal stops in every phase ends with the same bits', async () => {
    const run = join(folder, 'stopped');
    const when = (pattern: RegExp, signal: NodeJS.Signals) => (err: string) =>
      pattern.test(err) ? signal : undefined;
    const first = await steptrain(
      ['run', 'stepamc_arithmetic', '--output', run, ...SMALL],
      when(/sft step 1\//, 'SIGINT'),
    );
    expect(first.code).toBe(130);
    for (const [pattern, signal] of [
      [/reward_network step 1\//, 'SIGTERM'],
      [/ppo step 1\//, 'SIGINT'],
      [/evaluation of sft/, 'SIGINT'],
    ] as const) {
      const { code, err } = await steptrain(['run', '--resume', run], when(pattern, signal));
      // A phase may end before the signal arrives; then a later one is stopped, or none.
      expect([0, 130], err).toContain(code);
    }
    await steptrain(['run', '--resume', run]);
    expect(await result(run)).toEqual(whole);
  });

  const kills = repetitions(4, 12);
  test(`a run that is killed ${kills} times at random ends with the same bits`, async () => {
    const run = join(folder, 'killed');
    let state = 12345;
    const random = () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return state / 2 ** 32;
    };
    let ended = await steptrain(['run', 'stepamc_arithmetic', '--output', run, ...SMALL], (err) =>
      /Run directory/.test(err) ? 'SIGKILL' : undefined,
    );
    for (let i = 1; i < kills; i++) {
      ended = await steptrain(['run', '--resume', run], undefined, 700 + 2500 * random());
    }
    ended = await steptrain(['run', '--resume', run]);
    expect(ended.code, ended.err).toBe(0);
    expect(await result(run)).toEqual(whole);
  });

  test.each([
    ['ablation.no_reward_network=true', ['sft', 'ppo', 'test']],
    ['ablation.no_constraint=true', ['sft', 'reward_network', 'ppo', 'test']],
  ])('%s', async (variant, phases) => {
    const run = await ran(variant.replace('=', '-'), ['--set', variant]);
    const lines = await metrics(run);
    expect([...new Set(lines.map(({ phase }) => phase))]).toEqual(phases);
    // The warm-up does not depend on the stages after it.
    const warmUp = (all: Record<string, unknown>[]) => all.filter(({ phase }) => phase === 'sft');
    expect(warmUp(lines)).toEqual(warmUp(whole.metrics));
    expect(existsSync(join(run, 'reward'))).toBe(phases.includes('reward_network'));
  });

  test('its warm-up is a run of its own, from which others go on for as many tokens as StepAMC', async () => {
    const warm = join(folder, 'warm');
    /** Without the settings of sections that the method does not have. */
    const run = async (name: string, settings: readonly string[]) => {
      const others = settings.includes('method=sft')
        ? /^(reward_network|verdict_ppo)\./
        : /^(reward_network|verdict_ppo|sft)\./;
      const sft = SMALL.filter((_, i) => !others.test(SMALL[i - (i % 2) + 1] ?? ''));
      const output = join(folder, name);
      const { code, err } = await steptrain([
        'run',
        'stepamc_arithmetic',
        '--output',
        output,
        ...sft,
        ...settings,
      ]);
      expect(code, err).toBe(0);
      const { data } = JSON.parse(await readFile(join(output, 'eval.json'), 'utf8'));
      return { err, trained: data.trained_tokens as number };
    };
    const { trained: before } = await run('warm', set({ method: 'sft' }));
    const lines = (all: Record<string, unknown>[]) =>
      all.filter(({ phase }) => phase === 'sft').map(({ loss, f1_macro }) => ({ loss, f1_macro }));
    // The same warm-up to the bit.
    expect(lines(await metrics(warm))).toEqual(lines(whole.metrics));
    const all = whole.evaluation.data.trained_tokens as number;
    const budget = { 'model.adapter': warm, 'run.max_tokens': all - before };
    const continued = await run('continued', set({ ...budget, method: 'sft', 'sft.learning_rate': 1e-4 }));
    const preferred = await run(
      'preferred',
      set({
        ...budget,
        method: 'verdict_dpo',
        'verdict_dpo.learning_rate': 1e-4,
        'verdict_dpo.tokens_per_step': 1024,
      }),
    );
    for (const { trained, err } of [continued, preferred]) {
      // Batches are whole, so the last one may exceed it.
      expect(trained).toBeGreaterThanOrEqual(all - before);
      expect(trained).toBeLessThan(all - before + 1024);
      expect(err).toContain(`trained on ${trained} tokens of run.max_tokens ${all - before}`);
    }
    const [start] = (await metrics(join(folder, 'continued'))).filter(({ phase_step }) => phase_step === 0);
    expect(start?.f1_macro).toBe((await metrics(warm)).at(-1)?.best_f1_macro ?? start?.f1_macro);
  });

  test('unlabelled steps are judged for the rewards of the network, and the constraint leaves them out', async () => {
    const run = await ran(
      'unlabelled',
      set({
        'data.labelled': 60,
        'data.label_noise': 0.1,
        'verdict_ppo.steps': 'unlabelled',
        'constraint.alpha.mode': 'learnable_clamped',
      }),
    );
    const updates = (await metrics(run)).filter(({ phase, loss }) => phase === 'ppo' && loss !== undefined);
    expect(updates.length).toBeGreaterThan(0);
    for (const line of updates) {
      const { constraint_loss, rollout_verdicts, reward_std, alpha } = line;
      expect(constraint_loss).toBe(0);
      expect(alpha).toBe(0.5);
      // Of no step is it known whether it was judged rightly.
      for (const name of ['acc_pos', 'acc_neg', 'rollout_acc_pos', 'rollout_acc_neg'])
        expect(line).not.toHaveProperty(name);
      expect(rollout_verdicts).toBeGreaterThan(32);
      expect(reward_std).toBeGreaterThan(0);
    }
    const sampled = (await readFile(join(run, 'samples.jsonl'), 'utf8')).trim().split('\n');
    expect(sampled.every((line) => JSON.parse(line).label === null)).toBe(true);
  });

  test('verdicts after reasons are learned, written, rewarded and judged; a stopped run ends the same', async () => {
    const more = set({
      'data.source': 'word_problems',
      'data.word_problems.samples': 60,
      'data.word_problems.levels': '[1]',
      'data.word_problems.error_rate': 0.4,
      'data.max_length': 420,
      'data.rationales': 30,
      'prompt.response_format': 'rationale_then_verdict',
      'prompt.rationale_tokens': 120,
      'reward_network.update': 'joint',
      'sft.max_steps': 4,
      'verdict_ppo.max_iterations': 1,
      'verdict_ppo.rollout_batch': 24,
      'verdict_ppo.gamma': 0.9,
      'eval.max_samples': 3,
    });
    const whole = await ran('reasons', more);
    const stopped = join(folder, 'reasons-stopped');
    const first = (await metrics(whole)).find(({ phase, loss }) => phase === 'ppo' && loss !== undefined);
    // The mean of ones, weighted by a share for each token, rounds.
    expect(first?.ratio_max).toBe(1);
    expect(first?.ratio_mean).toBeCloseTo(1, 6);
    const samples = (await readFile(join(whole, 'samples.jsonl'), 'utf8')).trim().split('\n');
    for (const line of samples)
      for (const { tokens, advantages } of JSON.parse(line).answers) {
        expect(tokens.length).toBeGreaterThan(1);
        expect(advantages).toHaveLength(tokens.length);
      }
    await steptrain(['run', 'stepamc_arithmetic', '--output', stopped, ...SMALL, ...more], (text) =>
      /ppo step 1\//.test(text) ? 'SIGINT' : undefined,
    );
    await steptrain(['run', '--resume', stopped]);
    expect(tensors(join(stopped, 'adapter', 'adapter_model.safetensors'))).toEqual(
      tensors(join(whole, 'adapter', 'adapter_model.safetensors')),
    );
    const report = async (run: string) => JSON.parse(await readFile(join(run, 'eval.json'), 'utf8'));
    expect(await report(stopped)).toEqual(await report(whole));
    expect((await report(whole)).metrics).toHaveProperty('invalid');
  });

  test('reasons that the data lacks are asked for', async () => {
    const { code, err } = await steptrain([
      ...['run', 'stepamc_arithmetic', '--output', join(folder, 'no-reasons'), ...SMALL],
      ...set({ 'prompt.response_format': 'rationale_then_verdict' }),
    ]);
    expect(code).toBe(1);
    expect(err).toContain('no labelled training step has a reason to learn');
  });

  test('words of several tokens, enumerated rollouts and pairs of steps run to the end', async () => {
    const run = await ran(
      'words',
      set({
        'prompt.pos_word': '10',
        'prompt.neg_word': '01',
        'verdict_ppo.rollout': 'sample',
        'verdict_ppo.reward_at': 'every',
        'verdict_ppo.kl_in': 'reward',
        'verdict_ppo.reference': 'base',
        'reward_network.pair_mode': 'step',
      }),
    );
    const first = (await metrics(run)).find(
      ({ phase, ratio_mean }) => phase === 'ppo' && ratio_mean !== undefined,
    );
    expect(first).toMatchObject({ ratio_mean: 1, ratio_max: 1 });
    // The zero of scores of steps is arbitrary, so they are read by a threshold and are no probabilities.
    const { reward_network } = JSON.parse(await readFile(join(run, 'eval.json'), 'utf8'));
    for (const part of ['validation', 'test']) {
      expect(reward_network[part].threshold).toBe(reward_network.validation.threshold);
      expect(reward_network[part]).not.toHaveProperty('calibration');
    }
    const memory = JSON.parse(await readFile(join(run, 'memory.json'), 'utf8'));
    expect(memory.planned_cache_bytes).toBeGreaterThan(0);
    expect(memory.planned_peak_bytes).toBeGreaterThan(memory.planned_cache_bytes);
    const enumerated = await steptrain([
      'run',
      'stepamc_arithmetic',
      '--output',
      join(folder, 'enumerated'),
      ...SMALL,
      ...set({
        'verdict_ppo.rollout': 'enumerate',
        'verdict_ppo.temperature': 0.7,
        'constraint.form': 'class_balanced',
      }),
    ]);
    expect(enumerated.code, enumerated.err).toBe(0);
  });
});
