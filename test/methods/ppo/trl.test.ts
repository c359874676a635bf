// Losses and gradient norms of TRL's GRPO and RLOO for the same samples, advantages and old log-probs on the same tiny model
// (test/golden/trl_policy.json, make_trl_policy.py).
import { readFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { PpoRunConfig } from '../../../src/methods/ppo/config.js';
import { solutionObjective } from '../../../src/methods/ppo/objective.js';
import { createPpoRoles } from '../../../src/methods/ppo/roles.js';
import type { CreditedSolutions } from '../../../src/methods/ppo/rollout.js';
import { settled } from '../../../src/methods/ppo/settings.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { KlControl } from '../../../src/train/policy/kl.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

interface Case {
  readonly algorithm: 'grpo' | 'gspo' | 'rloo';
  readonly loss_type?: string;
  /** Of TRL: the coefficient of its KL penalty. */
  readonly beta: number;
  readonly epsilon: number;
  readonly epsilon_high: number;
  readonly loss: number;
  readonly grad_norm: number;
}

const golden = JSON.parse(readFileSync(new URL('../../golden/trl_policy.json', import.meta.url), 'utf8')) as {
  readonly longest: number;
  readonly prompts: number[][];
  readonly samples: { prompt: number; tokens: number[]; old: number[]; ref: number[]; advantage: number }[];
  readonly cases: Case[];
};

const device = openTest();
afterAll(() => device.dispose());

const groups = golden.prompts.map(
  (_, item): CreditedSolutions => ({
    item,
    answers: golden.samples
      .filter(({ prompt }) => prompt === item)
      .map(({ tokens, old, ref, advantage }) => ({
        tokens,
        text: '',
        truncated: false,
        oldLogprobs: old,
        refLogprobs: ref,
        samplerLogprobs: [],
        values: [],
        reward: 0,
        rewards: tokens.map(() => 0),
        advantages: tokens.map(() => advantage),
        returns: tokens.map(() => 0),
        share: 1,
      })),
  }),
);

async function measured(
  { algorithm, loss_type, beta, epsilon, epsilon_high }: Case,
  more: { readonly micro_batch_tokens: number; readonly branches: boolean },
) {
  const config = completeRunConfig({
    method: 'ppo',
    model: { base: goldenDirectory('qwen2'), dtype: 'f32' },
    lora: 'none',
    data: { source: 'word_problems', max_length: 12 },
    rollout: { num_generations: 2, max_new_tokens: golden.longest },
    ppo: {
      algorithm,
      ...(loss_type ? { loss_type } : {}),
      cliprange: epsilon,
      cliprange_high: epsilon_high,
      kl_coef: beta,
      kl_in: 'loss',
      kl_estimator: 'k3',
      ...more,
    },
  } as never) as PpoRunConfig;
  const roles = await createPpoRoles(device, config, byteTokenizer());
  const settings = settled(config);
  const objective = solutionObjective({
    roles,
    settings,
    kl: new KlControl(settings),
    promptOf: (id) => ({ id, ids: golden.prompts[id] as number[] }),
    temperature: 1,
    longest: golden.longest,
    microBatchTokens: more.micro_batch_tokens,
    steps: 1,
  });
  const { loss, metrics } = await objective.gradients(groups, 0);
  const grads = await roles.policyParameters.grads.readFloats();
  roles.dispose();
  return { loss, clipped: metrics.clip_fraction as number, grad_norm: Math.hypot(...grads) };
}

it.each(golden.cases)('$algorithm $loss_type, KL $beta', async (expected) => {
  for (const more of [
    { micro_batch_tokens: 4096, branches: true },
    { micro_batch_tokens: 12, branches: false },
  ]) {
    const found = await measured(expected, more);
    expect(found.loss).toBeCloseTo(expected.loss, 4);
    expect(Math.abs(found.grad_norm / expected.grad_norm - 1)).toBeLessThan(2e-4);
    // Some ratios are outside the range, so that the clip is tested too.
    expect(found.clipped).toBeGreaterThan(0);
  }
});
