// StepAMC without lora: policy, reference and reward network are copies of all weights.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { baseDirectory } from '../../src/models/base.js';
import { compiled, lastCheckpoint, metrics, steptrain, tensors } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-stepamc-whole-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const SMALL = Object.entries({
  lora: 'none',
  'data.arithmetic.samples': 120,
  'sft.num_train_epochs': 1,
  'sft.learning_rate': 1e-4,
  'sft.save_steps': 2,
  'reward_network.max_steps': 3,
  'reward_network.learning_rate': 1e-4,
  'reward_network.init': 'sft',
  'reward_network.save_steps': 2,
  'verdict_ppo.max_iterations': 2,
  'verdict_ppo.rollout_batch': 64,
  'verdict_ppo.learning_rate': 1e-5,
  'verdict_ppo.save_steps': 2,
  'run.logging_steps': 1,
  'run.threads': 1,
  'eval.max_samples': 12,
}).flatMap(([key, value]) => ['--set', `${key}=${value}`]);

async function result(run: string) {
  return {
    metrics: await metrics(run),
    model: tensors(join(run, 'model', 'model.safetensors')),
    reward: tensors(join(run, 'reward', 'model.safetensors')),
    value: tensors(join(run, 'value_head.safetensors')),
    checkpoint: await lastCheckpoint(run),
    evaluation: JSON.parse(await readFile(join(run, 'eval.json'), 'utf8')),
  };
}

describe.skipIf(!compiled)('steptrain run: stepamc without lora (needs dist/: npm run build)', () => {
  let whole: Awaited<ReturnType<typeof result>>;
  beforeAll(async () => {
    const run = join(folder, 'whole');
    const { code, err } = await steptrain(['run', 'stepamc_arithmetic', '--output', run, ...SMALL]);
    expect(code, err).toBe(0);
    whole = await result(run);
  });

  test('every role has weights of its own, and the policy leaves the reference that it began at', () => {
    const { model, reward, metrics } = whole;
    expect(reward.has('score.weight')).toBe(true);
    const name = 'model.layers.0.mlp.up_proj.weight';
    expect(reward.get(name)).not.toBe(model.get(name));
    const trained = whole.checkpoint['trainable.safetensors'] as Map<string, string>;
    for (const role of ['policy', 'reference', 'reward'])
      expect(trained.has(`${role}.${name}`), role).toBe(true);
    const base = tensors(join(baseDirectory('embedded'), 'model.safetensors'));
    expect(model.get(name)).not.toBe(base.get(name));
    const updates = metrics.filter(({ phase, ratio_mean }) => phase === 'ppo' && ratio_mean !== undefined);
    expect(updates[0]).toMatchObject({ ratio_mean: 1, kl_k1: 0, kl_k3: 0 });
    expect(updates.at(-1)?.kl_k3).toBeGreaterThan(0);
  });

  test('the memory plan holds the base and a copy for each role, and is what is held', async () => {
    const { planned_bytes: planned, held_bytes: held } = JSON.parse(
      await readFile(join(folder, 'whole', 'memory.json'), 'utf8'),
    );
    expect(Object.keys(planned)).toEqual(['base', 'policy', 'reference', 'reward']);
    for (const role of ['base', 'reference']) expect(held[role] / planned[role], role).toBeCloseTo(1, 1);
    // Without the moments of AdamW, which live as long as their stage.
    for (const role of ['policy', 'reward']) expect(held[role] / planned[role], role).toBeCloseTo(0.5, 1);
    const { out } = await steptrain(['run', 'stepamc_arithmetic', '--dry-run', ...SMALL]);
    expect(out).toMatch(/base +3\.1 MiB {2}0\.8M frozen parameters, f32, shared by all roles/);
    expect(out).toMatch(/policy +12\.5 MiB {2}0\.8M parameters with gradients and AdamW moments, f32/);
    expect(out).toMatch(/reward +12\.5 MiB/);
  });

  test('a run that a signal stops in every phase ends with the same bits', async () => {
    const run = join(folder, 'stopped');
    const when = (pattern: RegExp) => (err: string) => (pattern.test(err) ? ('SIGINT' as const) : undefined);
    const first = await steptrain(
      ['run', 'stepamc_arithmetic', '--output', run, ...SMALL],
      when(/sft step 1\//),
    );
    expect(first.code).toBe(130);
    for (const pattern of [/reward_network step 1\//, /ppo step 1\//, /evaluation of sft/]) {
      const { code, err } = await steptrain(['run', '--resume', run], when(pattern));
      expect([0, 130], err).toContain(code);
    }
    await steptrain(['run', '--resume', run]);
    expect(await result(run)).toEqual(whole);
  });

  test('its model judges and its reward network scores, from the directory alone', async () => {
    const run = join(folder, 'whole');
    const file = join(folder, 'solutions.jsonl');
    await writeFile(file, `${JSON.stringify({ problem: '1+2', steps: ['1+2=3', '3+4=8'] })}\n`);
    for (const scorer of ['verdict', 'reward']) {
      const { code, out, err } = await steptrain(['score', file, '--model', run, '--scorer', scorer]);
      expect(code, err).toBe(0);
      const { scores } = JSON.parse(out) as { scores: number[] };
      expect(scores, scorer).toHaveLength(2);
      expect(scores.every(Number.isFinite), scorer).toBe(true);
    }
    const judged = await steptrain(['eval', 'correction', run, '--output', join(folder, 'again')]);
    expect(judged.code, judged.err).toBe(0);
    const again = JSON.parse(await readFile(join(folder, 'again', 'eval.json'), 'utf8'));
    expect(again.metrics.accuracy).toBe(whole.evaluation.metrics.accuracy);
    expect(existsSync(join(run, 'adapter'))).toBe(false);
  });
});
