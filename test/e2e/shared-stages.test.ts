// `--share-stages`: a stage that runs have in common is trained once, and nothing else is taken over.
import { mkdtemp, readdir, readFile, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, metrics, steptrain, tensors } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-shared-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Starts a run; the stage that it took from another. */
async function startRun(recipe: string, name: string, set: readonly string[], share = true) {
  const { code, err } = await steptrain([
    'run',
    recipe,
    '--output',
    join(folder, name),
    ...(share ? ['--share-stages', shared()] : []),
    ...set.flatMap((text) => ['--set', text]),
  ]);
  expect(err).toMatch(/Done after/);
  expect(code).toBe(0);
  return /(\w+): taken from/.exec(err)?.[1];
}

const SET = [
  'data.word_problems.samples=120',
  'eval.max_samples=8',
  'lora.r=4',
  'run.threads=1',
  'reward_network.eval_steps=0',
  'verdict_ppo.eval_steps=0',
  'sft.eval_steps=0',
  // Without a choice among parameters, so that what the policy learned is what is compared.
  'verdict_ppo.load_best_model_at_end=false',
  'run.logging_steps=1',
];
const shared = () => join(folder, 'stages');
const start = (name: string, { own = [], share = true }: { own?: string[]; share?: boolean } = {}) =>
  startRun('stepamc_word_problems', name, [...SET, ...own], share);
const file = (name: string, ...path: string[]) => join(folder, name, ...path);
const adapter = (name: string) => tensors(file(name, 'adapter', 'adapter_model.safetensors'));
const model = (name: string) => tensors(file(name, 'model', 'model.safetensors'));

/** `second`, which takes a stage over from `first`, ends with the bits of `alone`, and `first` with others. */
async function expectBitsOf(
  weights: typeof model,
  { second, alone, first }: Record<'second' | 'alone' | 'first', string>,
  files: readonly (readonly string[])[] = [['eval.json']],
): Promise<void> {
  expect(weights(second)).toEqual(weights(alone));
  expect(weights(second)).not.toEqual(weights(first));
  expect(await metrics(file(second))).toEqual(await metrics(file(alone)));
  const text = (name: string, path: readonly string[]) => readFile(file(name, ...path), 'utf8');
  for (const path of files) expect(await text(second, path)).toBe(await text(alone, path));
}

describe.skipIf(!compiled)('stages that runs share (needs dist/: npm run build)', () => {
  test('a run that takes them ends with the bits of one that trained them', async () => {
    await start('alone', { share: false });
    expect(await start('first', { own: ['verdict_ppo.learning_rate=3.0e-4'] })).toBeUndefined();
    expect(await start('second')).toBe('reward_network');
    await expectBitsOf(adapter, { second: 'second', alone: 'alone', first: 'first' });
  });

  test('what a stage reads must be equal: the network reads its own settings, the warm-up its own too', async () => {
    expect(await start('network', { own: ['reward_network.learning_rate=1.0e-4'] })).toBe('sft');
    expect(await start('warm-up', { own: ['sft.learning_rate=1.0e-4'] })).toBeUndefined();
  });

  test('what was left there and is damaged is trained again', async () => {
    const [name] = (await readdir(shared())).filter((each) => each.startsWith('reward_network-'));
    for (const each of (await readdir(shared())).filter((each) => each.startsWith('reward_network-'))) {
      const [step] = (await readdir(join(shared(), each))).filter((each) => each.startsWith('step-'));
      await truncate(join(shared(), each, step as string, 'trainable.safetensors'), 100);
    }
    expect(name).toBeDefined();
    expect(await start('damaged')).toBe('sft');
    expect(adapter('damaged')).toEqual(adapter('alone'));
  });

  test('s3c: samples made of the base are shared by whatever learns from them', async () => {
    const common = [
      'data.word_problems.samples=60',
      'corrections.chunk=12',
      'corrections.validate.k=1',
      's3c.max_steps=2',
      'eval.max_samples=6',
      'eval_sampling.num_samples=0',
      'eval_sampling.max_new_tokens=60',
      'run.threads=1',
    ];
    const run = (name: string, own: readonly string[], share = true) =>
      startRun('quickstart_s3c', name, [...common, ...own], share);
    const tuned = ['s3c.variant=sham', 's3c.learning_rate=1.0e-3', 's3c.micro_batch_tokens=1024'];
    await run('s3c-alone', tuned, false);
    expect(await run('s3c-first', [])).toBeUndefined();
    expect(await run('s3c-second', tuned)).toBe('corrections');
    await expectBitsOf(model, { second: 's3c-second', alone: 's3c-alone', first: 's3c-first' }, [
      ['eval.json'],
      ['artefacts', 'samples.jsonl'],
    ]);
    // Another way to sample makes other samples.
    expect(await run('s3c-hot', ['corrections.sample.temperature=2'])).toBeUndefined();
  });

  test('ppo: solutions of the base are shared by whatever rewards and algorithm learn', async () => {
    const common = [
      'data.word_problems.samples=60',
      'eval.max_samples=6',
      'rollout.num_generations=2',
      'ppo.rollout_batch=4',
      'ppo.max_iterations=1',
      'ppo.micro_batch_tokens=512',
      'run.threads=1',
    ];
    const run = (name: string, own: readonly string[], share = true) =>
      startRun('quickstart_reinforce', name, [...common, ...own], share);
    const tuned = [
      'reward.oracle.weight=1',
      'ppo.algorithm=rloo',
      'ppo.learning_rate=1.0e-3',
      'ppo.load_best_model_at_end=false',
    ];
    await run('ppo-alone', tuned, false);
    expect(await run('ppo-first', [])).toBeUndefined();
    expect(await run('ppo-second', tuned)).toBe('base');
    await expectBitsOf(model, { second: 'ppo-second', alone: 'ppo-alone', first: 'ppo-first' });
    // The evaluation before the first step is of the base too.
    const base = (await readFile(file('ppo-first', 'artefacts', 'base.jsonl'), 'utf8')).trim().split('\n');
    const validation = base.map((row) => JSON.parse(row)).filter(({ part }) => part === 'validation');
    const start = (await metrics(file('ppo-first'))).find(({ phase_step }) => phase_step === 0);
    expect(start?.accuracy).toBe(validation.filter(({ right }) => right).length / validation.length);
    expect(start?.accuracy).toBeGreaterThan(0);
    // A critic has parameters of its own, and rewards of the base need more of its solutions.
    expect(await run('ppo-critic', ['ppo.algorithm=ppo', 'ppo.critic_warmup=0'])).toBeUndefined();
    const adapted = ['lora.r=4', 'ppo.learning_rate=1.0e-3'];
    await run('ppo-lora', adapted);
    expect(await run('ppo-lora-again', adapted)).toBe('base');
    const implicit = ['reward.implicit.weight=1', 'ppo.algorithm=prime'];
    expect(await run('ppo-prime', [...adapted, ...implicit])).toBeUndefined();
    expect(await run('ppo-whitened', ['reward.rule.whiten=base', 'reward.base_problems=3'])).toBeUndefined();
  });
});
