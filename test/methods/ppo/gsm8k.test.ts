// Reinforcement learning on the real file of GSM8K: the whole path, with random weights that solve nothing.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { train } from '../../../src/methods/run.js';
import { goldenDirectory } from '../../models/golden.js';
import { sharedPath } from '../../shared.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const gsm8k = sharedPath('data/gsm8k/test.jsonl');

it.skipIf(!gsm8k)('takes problems of GSM8K, rewards by the answer, and steps (needs ../shared)', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const { status, directory } = await train(
    {
      method: 'ppo',
      model: { base: goldenDirectory('llama3'), tokenizer: 'bytes', dtype: 'f32' },
      lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
      data: { source: 'problems', train: gsm8k, max_length: 250 },
      rollout: { num_generations: 2, max_new_tokens: 6, template: '{problem}\n' },
      reward: { format: { weight: 1, pattern: '[a-zA-Z]' } },
      ppo: { algorithm: 'grpo', rollout_batch: 3, max_iterations: 2, load_best_model_at_end: false },
      run: { device: 'cpu', threads: 1, logging_steps: 1 },
      eval: { max_samples: 2 },
    } as never,
    { output: join(temporaryDirectory(), 'run') },
  );
  said.mockRestore();
  expect(status).toBe('finished');
  const steps = readFileSync(join(directory, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ phase, iteration }) => phase === 'ppo' && iteration !== undefined);
  expect(steps.length).toBeGreaterThan(0);
  expect(steps[0]).toMatchObject({ reward_rule: expect.any(Number), grad_norm: expect.any(Number) });
  const [sample] = readFileSync(join(directory, 'samples.jsonl'), 'utf8').trim().split('\n');
  const problems = readFileSync(gsm8k as string, 'utf8');
  expect(problems).toContain(JSON.stringify(JSON.parse(sample as string).problem).slice(1, -1));
  expect(existsSync(join(directory, 'adapter/adapter_model.safetensors'))).toBe(true);
});
