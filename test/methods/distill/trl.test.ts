// Losses and gradient norms of TRL's DistillationTrainer and ServerDistillationTrainer, for the same samples, student and teacher
// (test/golden/trl_distillation.json, make_trl_distillation.py).
import { readFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { DistillConfig } from '../../../src/methods/distill/config.js';
import { distillObjective } from '../../../src/methods/distill/objective.js';
import { distillRoles } from '../../../src/methods/distill/roles.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const golden = JSON.parse(
  readFileSync(new URL('../../golden/trl_distillation.json', import.meta.url), 'utf8'),
) as {
  readonly prompts: number[][];
  readonly samples: { readonly prompt: number; readonly tokens: number[]; readonly teacher: number[] }[];
  readonly cases: Record<'beta' | 'temperature' | 'loss' | 'grad_norm' | 'entropy', number>[];
  readonly sampled: Record<'loss' | 'grad_norm', number>;
};

const device = openTest();
afterAll(() => device.dispose());

async function measured(
  settings: object,
  temperature: number,
  microBatchTokens: number,
  importance?: number[][],
) {
  const config = completeRunConfig({
    method: 'distill',
    model: { base: goldenDirectory('qwen2'), dtype: 'f32' },
    lora: 'none',
    data: { source: 'word_problems', max_length: 16 },
    rollout: { max_new_tokens: 8 },
    ...settings,
  } as never) as DistillConfig;
  const roles = await distillRoles({ device, config, tokenizer: byteTokenizer() } as never);
  const { gradients } = distillObjective({
    roles,
    teacher: roles.teacher,
    beta: config.distill.beta,
    temperature,
    promptOf: (id) => ({ id, ids: golden.prompts[id] as number[] }),
    microBatchTokens,
  });
  const groups = golden.prompts.map((_, item) => ({
    item,
    answers: golden.samples.flatMap(({ prompt, tokens, teacher }, i) =>
      prompt === item
        ? [
            {
              ...{ tokens, text: '', truncated: false, reward: 0, share: 1 },
              ...{ oldLogprobs: [], samplerLogprobs: [], values: [], refLogprobs: teacher },
              ...{ rewards: [], advantages: [], returns: [] },
              ...(importance ? { importance: importance[i] as number[] } : {}),
            },
          ]
        : [],
    ),
  }));
  const { loss, metrics } = await gradients(groups, 0);
  const grads = await roles.policyParameters.grads.readFloats();
  roles.dispose();
  return { loss, metrics, grad_norm: Math.hypot(...grads) };
}

const near = (found: number, expected: number) => expect(Math.abs(found / expected - 1)).toBeLessThan(2e-4);

it.each(golden.cases)(
  'beta $beta at temperature $temperature',
  async ({ beta, temperature, ...expected }) => {
    for (const microBatchTokens of [1024, 12]) {
      const settings = { teacher: { model: goldenDirectory('mistral') }, distill: { beta } };
      const found = await measured(settings, temperature, microBatchTokens);
      near(found.loss, expected.loss);
      near(found.grad_norm, expected.grad_norm);
      near(found.metrics.entropy as number, expected.entropy);
      if (beta === 1) near(found.metrics.reverse_kl as number, expected.loss);
      if (beta === 0) near(found.metrics.forward_kl as number, expected.loss);
    }
  },
);

it('the sampled token alone, as from a server', async () => {
  for (const microBatchTokens of [1024, 12]) {
    const found = await measured({ teacher: { url: 'http://127.0.0.1:1' } }, 1, microBatchTokens);
    near(found.loss, golden.sampled.loss);
    near(found.grad_norm, golden.sampled.grad_norm);
  }
});

it('weighs tokens: equal weights change nothing, and tokens of weight 0 are left out', async () => {
  const settings = { teacher: { model: goldenDirectory('mistral') } };
  const ones = golden.samples.map(({ tokens }) => tokens.map(() => 0.25));
  near((await measured(settings, 1, 1024, ones)).loss, golden.cases[0]!.loss);
  const first = golden.samples.map(({ tokens }, i) => tokens.map((_, t) => (i === 0 && t === 0 ? 2 : 0)));
  const one = await measured(settings, 1, 1024, first);
  expect(one.loss).not.toBeCloseTo(golden.cases[0]!.loss, 3);
  near(one.loss, one.metrics.reverse_kl as number);
});

it('a teacher of another vocabulary is refused by name', async () => {
  await expect(measured({ teacher: { model: 'word-problems' } }, 1, 1024)).rejects.toThrow(
    /teacher.model word-problems has a vocabulary of \d+ tokens and the student one of 320/,
  );
});
