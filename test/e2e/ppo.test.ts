// `method: ppo` as a user starts it: problems in, a policy out, the same bits after stops and kills in any phase.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { goldenDirectory } from '../models/golden.js';
import { compiled, lastCheckpoint, metrics, steptrain, tensors } from './program.js';

let folder: string;
let recipe: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-ppo-'));
  recipe = join(folder, 'small.yaml');
  await writeFile(
    recipe,
    `method: ppo
model: {base: ${goldenDirectory('llama3')}, tokenizer: bytes, dtype: f32}
lora: {r: 4, lora_alpha: 8, lora_dropout: 0}
data: {source: word_problems, word_problems: {samples: 40, levels: [1]}, max_length: 250}
rollout: {num_generations: 3, max_new_tokens: 12, template: "{problem}\\n"}
reward: {format: {weight: 1, pattern: "[a-m]"}, length: {weight: 0.1, from: 2, to: 12}}
ppo:
  learning_rate: 1e-3
  rollout_batch: 3
  max_iterations: 3
  num_ppo_epochs: 2
  num_mini_batches: 2
  critic: adapter
  critic_warmup: 2
  kl_target: 0.01
  kl_horizon: 20
  eval_steps: 5
  save_steps: 3
  load_best_model_at_end: false
run: {device: cpu, threads: 1, logging_steps: 1}
eval: {max_samples: 3}
`,
  );
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(!compiled)('method: ppo (needs dist/: npm run build)', () => {
  test('logs the mean reward of all that was sampled, also of what is masked', async () => {
    const output = join(folder, 'masked');
    const settings = [
      'algorithm=grpo',
      'truncated=mask',
      'rollout_batch=2',
      'max_iterations=1',
      'kl_target=0',
    ];
    const set = settings.flatMap((setting) => ['--set', `ppo.${setting}`]);
    const { code, err } = await steptrain(['run', recipe, '--output', output, ...set]);
    expect(code, err).toBe(0);
    const [first] = (await metrics(output)).filter(
      ({ phase, iteration }) => phase === 'ppo' && iteration === 0,
    );
    const samples = (await readFile(join(output, 'samples.jsonl'), 'utf8')).trim().split('\n');
    const solutions = samples.flatMap(
      (line) => JSON.parse(line).solutions as { reward: number; truncated: boolean }[],
    );
    expect(solutions.some(({ truncated }) => truncated)).toBe(true);
    const mean = solutions.reduce((sum, { reward }) => sum + reward, 0) / solutions.length;
    expect(mean).not.toBe(0);
    expect(first?.reward_mean).toBeCloseTo(mean, 10);
  });

  test('trains and reports; stopped and killed in between, it ends with the same bits', async () => {
    const whole = join(folder, 'whole');
    const { code, out, err } = await steptrain(['run', recipe, '--output', whole]);
    expect(out).toMatch(/^3 problems, % +before +after\nsolved /);
    expect(code, err).toBe(0);
    // Evaluated again from its files, and compared with itself.
    expect((await steptrain(['eval', 'show', whole])).out).toBe(out);
    expect((await steptrain(['eval', 'compare', whole, whole])).out).toMatch(/pass@1/);
    const lines = await metrics(whole);
    const steps = lines.filter(({ phase }) => phase === 'ppo');
    expect(steps.length).toBeGreaterThanOrEqual(12);
    // The base is asked once, before training; its answers stand in the table.
    const base = (await readFile(join(whole, 'artefacts', 'base.jsonl'), 'utf8')).trim().split('\n');
    expect(base.map((line) => JSON.parse(line).part)).toEqual([
      ...Array(3).fill('test'),
      ...Array(3).fill('validation'),
    ]);
    expect(steps[0]).toMatchObject({ ratio_max: 1, critic_warmup: 1, solutions: 9, kl_coef: 0.02 });
    for (const key of [
      'reward_format',
      'reward_length',
      'reward_rule',
      'kl_k1',
      'kl_k3',
      'kl_answer',
      'critic_grad_norm',
    ])
      expect(steps[0], key).toHaveProperty(key);
    const samples = (await readFile(join(whole, 'samples.jsonl'), 'utf8')).trim().split('\n');
    expect(samples.length).toBe(6);
    expect(JSON.parse(samples[0]!).solutions[0]).toHaveProperty('terms.format');
    const solved = JSON.parse(await readFile(join(whole, 'eval.json'), 'utf8'));
    expect(solved.metrics['pass@1']).toBe(solved.models.after.all['pass@1'].value);
    expect(solved.metrics['level 1.tokens']).toBeGreaterThan(0);
    expect(solved.metrics_validation).toHaveProperty('pass@1');

    const broken = join(folder, 'broken');
    const stopped = await steptrain(['run', recipe, '--output', broken], (text) =>
      /ppo step 1\//.test(text) ? 'SIGINT' : undefined,
    );
    expect(stopped.code).toBe(130);
    await steptrain(['run', '--resume', broken], undefined, 1500);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    for (const file of ['adapter/adapter_model.safetensors', 'value_head.safetensors'])
      expect(tensors(join(broken, file)), file).toEqual(tensors(join(whole, file)));
    expect(await metrics(broken)).toEqual(lines);
    expect((await lastCheckpoint(broken))['trainable.safetensors']).toEqual(
      (await lastCheckpoint(whole))['trainable.safetensors'],
    );
    expect((await readFile(join(broken, 'samples.jsonl'), 'utf8')).trim().split('\n')).toEqual(samples);
  });

  test('whitens rewards by solutions of the base, the same for a whole run', async () => {
    const run = join(folder, 'standardised');
    const set = [
      'reward.format.pattern=[a-c]',
      'reward.format.whiten=base',
      'reward.length.weight=0',
      'reward.base_problems=5',
      'ppo.truncated=keep',
      'ppo.max_iterations=2',
    ];
    const { code, err } = await steptrain([
      'run',
      recipe,
      '--output',
      run,
      ...set.flatMap((s) => ['--set', s]),
    ]);
    expect(code, err).toBe(0);
    const logged = (await readFile(join(run, 'metrics.jsonl'), 'utf8')).trim().split('\n');
    const shares = logged
      .map((line) => JSON.parse(line))
      .filter(({ phase, right }) => phase === 'base' && right !== undefined);
    expect(shares.length).toBeGreaterThan(0);
    for (const { right } of shares) expect(right).toBeLessThanOrEqual(1);
    const rows = (await readFile(join(run, 'artefacts', 'base.jsonl'), 'utf8')).trim().split('\n');
    const train = rows.map((row) => JSON.parse(row)).filter(({ part }) => part === 'train');
    expect(train).toHaveLength(15);
    const formed: number[] = train.map(({ text }) => (/[a-c]/.test(text) ? 1 : 0));
    const mean = formed.reduce((sum, value) => sum + value, 0) / 15;
    expect(mean).toBeGreaterThan(0);
    expect(mean).toBeLessThan(1);
    const deviation = Math.sqrt(formed.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 14);
    const samples = (await readFile(join(run, 'samples.jsonl'), 'utf8')).trim().split('\n');
    for (const { terms, reward } of samples.flatMap((line) => JSON.parse(line).solutions))
      expect(reward).toBeCloseTo(terms.rule + (terms.format - mean) / deviation, 5);
  });

  test('refuses a warm-up of the critic that leaves the policy no step', async () => {
    const run = join(folder, 'warm');
    const { code, err } = await steptrain([
      ...['run', recipe, '--output', run],
      ...['--set', 'ppo.critic_warmup=12', '--dry-run'],
    ]);
    expect(code).toBe(1);
    expect(err).toMatch(/ppo\.critic_warmup 12: .* the run has 12, .* set it lower/);
  });

  test('leaves out the rest of a rollout batch once the policy is too far', async () => {
    const run = join(folder, 'stopped');
    const set = ['ppo.kl_stop=1e-9', 'ppo.critic_warmup=0', 'ppo.max_iterations=1'].flatMap((each) => [
      '--set',
      each,
    ]);
    const { code, err } = await steptrain(['run', recipe, '--output', run, ...set]);
    expect(code, err).toBe(0);
    const steps = (await metrics(run)).filter(
      ({ phase, iteration }) => phase === 'ppo' && iteration !== undefined,
    );
    expect(steps.map(({ stopped_by_kl }) => stopped_by_kl)).toEqual([undefined, 1, undefined, undefined]);
    expect(steps.map(({ grad_norm }) => grad_norm !== undefined)).toEqual([true, false, false, false]);
  });

  test('compares groups by rewards of steps, of a function and by weighted levels', async () => {
    const run = join(folder, 'steps');
    const module = join(folder, 'reward.mjs');
    await writeFile(module, 'export default (solutions) => solutions.map(({ tokens }) => tokens / 10);');
    const set = [
      'ppo.algorithm=grpo',
      'ppo.max_iterations=1',
      'reward.placement=step',
      'reward.bound=delta',
      'reward.oracle.weight=1',
      'reward.function.weight=0.5',
      `reward.function.module=${module}`,
      'rollout.mix={level 1: 2}',
    ].flatMap((each) => ['--set', each]);
    const { code, err } = await steptrain(['run', recipe, '--output', run, ...set]);
    expect(code, err).toBe(0);
    const [first] = (await metrics(run)).filter(({ phase }) => phase === 'ppo');
    expect(first).toMatchObject({ ratio_max: 1 });
    for (const key of ['reward_oracle', 'reward_function']) expect(first).toHaveProperty(key);
  });

  test('learns from a model of steps and one of outcomes that other runs trained, counted in the memory plan', async () => {
    const base = `{base: ${goldenDirectory('llama3')}, tokenizer: bytes, dtype: f32}`;
    for (const type of ['prm', 'orm']) {
      const judge = join(folder, `${type}.yaml`);
      await writeFile(
        judge,
        `method: reward
model: ${base}
lora: ${type === 'prm' ? '{r: 4, lora_alpha: 8, lora_dropout: 0}' : 'none'}
data: {source: word_problems, word_problems: {samples: 40, levels: [1]}, max_length: 250}
reward_model: {type: ${type}, tokens_per_step: 2048}
run: {device: cpu, threads: 1}
`,
      );
      const { code, err } = await steptrain(['run', judge, '--output', join(folder, type)]);
      expect(code, err).toBe(0);
    }
    const set = [
      'reward.rule.weight=0',
      'reward.steps.weight=1',
      `reward.steps.model=${join(folder, 'prm')}`,
      'reward.steps.aggregation=product',
      'reward.steps.shuffle=true',
      'reward.outcome.weight=1',
      `reward.outcome.model=${join(folder, 'orm/model')}`,
      'reward.placement=step',
      'ppo.max_iterations=2',
    ].flatMap((each) => ['--set', each]);
    const plan = await steptrain(['run', recipe, '--dry-run', ...set]);
    expect(plan.out).toMatch(
      / PRM .* frozen parameters, f32, and an adapter\n.* ORM .* frozen parameters, f32\n/,
    );
    const whole = join(folder, 'judged');
    const { code, err } = await steptrain(['run', recipe, '--output', whole, ...set]);
    expect(code, err).toBe(0);
    const { planned_bytes: planned, held_bytes: held } = JSON.parse(
      await readFile(join(whole, 'memory.json'), 'utf8'),
    );
    for (const role of ['PRM', 'ORM']) {
      expect(held[role] / planned[role], role).toBeGreaterThan(0.8);
      expect(held[role] / planned[role], role).toBeLessThan(1.3);
    }
    const lines = await metrics(whole);
    const [first] = lines.filter(({ phase }) => phase === 'ppo');
    expect(first!.reward_steps).toBeGreaterThan(0);
    expect(Number.isFinite(first!.reward_outcome)).toBe(true);

    const broken = join(folder, 'judged-broken');
    const stopped = await steptrain(['run', recipe, '--output', broken, ...set], (text) =>
      /ppo step 1\//.test(text) ? 'SIGINT' : undefined,
    );
    expect(stopped.code).toBe(130);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    expect(await metrics(broken)).toEqual(lines);
  });

  test('trains an implicit reward model beside the policy, with the same bits after a stop', async () => {
    const set = [
      'reward.implicit.weight=5',
      'reward.implicit.learning_rate=1e-3',
      'ppo.algorithm=prime',
      'ppo.kl_target=0',
      'ppo.max_iterations=3',
      'ppo.save_steps=2',
    ].flatMap((each) => ['--set', each]);
    expect((await steptrain(['run', recipe, '--dry-run', ...set])).out).toMatch(
      / implicit .* parameters with gradients and AdamW moments/,
    );
    const whole = join(folder, 'prime');
    const { code, err } = await steptrain(['run', recipe, '--output', whole, ...set]);
    expect(code, err).toBe(0);
    const broken = join(folder, 'prime-broken');
    const stopped = await steptrain(['run', recipe, '--output', broken, ...set], (text) =>
      /ppo step 1\//.test(text) ? 'SIGINT' : undefined,
    );
    expect(stopped.code).toBe(130);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    expect(await metrics(broken)).toEqual(await metrics(whole));
    for (const name of ['adapter', 'implicit'].map((each) => join(each, 'adapter_model.safetensors')))
      expect(tensors(join(broken, name)), name).toEqual(tensors(join(whole, name)));
  });

  test('refuses settings that contradict each other, in a sentence', async () => {
    for (const [setting, message] of [
      ['rollout.mix={level 1: 0}', /no group with a weight above 0/],
      ['ppo.kl_coef=0', /0 stays 0/],
      ['ppo.reference=none', /leaves nothing to keep near to/],
      ['rollout.max_new_tokens=250', /leaves no token of data\.max_length/],
      ['data.source=arithmetic', /has no final answers/],
      ['reward.steps.weight=1', /reward\.steps needs reward\.steps\.model/],
      ['lora=none', /ppo\.critic "adapter" needs lora/],
    ] as const) {
      const { code, err } = await steptrain(['run', recipe, '--set', setting]);
      expect(err).toMatch(message);
      expect(code).toBe(1);
    }
  });
});
