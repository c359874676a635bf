// Every phase of the built-in example on the GPU, with the losses of the CPU. It has only a few steps, so that the
// emulator can run it; scripts/device/run.sh runs all of it.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, metrics, steptrain } from '../e2e/program.js';
import { gpus, skipped } from './gpu.js';

const SIZES = {
  'data.arithmetic.samples': 40,
  'data.arithmetic.steps': 2,
  'data.max_length': 64,
  'lora.r': 4,
  'sft.max_steps': 2,
  'sft.tokens_per_step': 64,
  'sft.micro_batch_tokens': 64,
  'reward_network.max_steps': 2,
  'reward_network.tokens_per_step': 64,
  'reward_network.micro_batch_tokens': 64,
  'verdict_ppo.max_iterations': 1,
  'verdict_ppo.rollout_batch': 4,
  'verdict_ppo.num_ppo_epochs': 1,
  'verdict_ppo.num_mini_batches': 1,
  'verdict_ppo.micro_batch_tokens': 128,
  'run.logging_steps': 1,
  'eval.max_samples': 2,
};
/** Tolerance of a loss: f32 sums differ only in their order; in bf16 a value may also round the other way. */
const TOLERANCES = { f32: 1e-3, bf16: 2e-2 };

describe.skipIf(gpus.length === 0 || !compiled)(`the built-in example on cuda:0${skipped}`, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-cuda-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  async function losses(device: string, dtype: string) {
    const run = join(folder, `${device.replace(':', '')}-${dtype}`);
    const set = Object.entries({ ...SIZES, 'run.device': device, 'model.dtype': dtype }).flatMap(
      ([key, value]) => ['--set', `${key}=${value}`],
    );
    const { code, err } = await steptrain(['run', 'stepamc_arithmetic', '--output', run, ...set]);
    expect(err).toMatch(/Done after \d+ steps/);
    expect(code).toBe(0);
    return metrics(run);
  }

  test.each(['f32', 'bf16'] as const)(
    'runs all its phases in %s with the losses of the CPU',
    async (dtype) => {
      const [gpu, cpu] = [await losses('cuda:0', dtype), await losses('cpu', dtype)];
      expect([...new Set(gpu.map(({ phase }) => phase))]).toEqual([
        ...new Set(cpu.map(({ phase }) => phase)),
      ]);
      const trained = (lines: typeof cpu) =>
        lines.flatMap(({ phase, loss }) =>
          (phase === 'sft' || phase === 'reward_network') && loss !== undefined ? [loss as number] : [],
        );
      expect(trained(cpu).length).toBeGreaterThanOrEqual(4);
      expect(trained(gpu).length).toBe(trained(cpu).length);
      trained(cpu).forEach((loss, i) => {
        expect(Math.abs((trained(gpu)[i] as number) - loss)).toBeLessThan(
          TOLERANCES[dtype] * Math.max(1, Math.abs(loss)),
        );
      });
    },
    1_200_000,
  );
});
