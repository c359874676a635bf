// Losses and gradient norms of TRL's GRPO and RLOO for the same samples, advantages and old log-probs on the same tiny model, its ratios to
// a sampler's log-probs and its advantages of several rewards (test/golden/trl_policy.json, make_trl_policy.py).
import { readFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { solutionAdvantage } from '../../../src/methods/ppo/advantage.js';
import type { PpoRunConfig } from '../../../src/methods/ppo/config.js';
import { solutionObjective } from '../../../src/methods/ppo/objective.js';
import { createPpoRoles } from '../../../src/methods/ppo/roles.js';
import type { CreditedSolutions, SolutionGroup } from '../../../src/methods/ppo/rollout.js';
import { settled } from '../../../src/methods/ppo/settings.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import {
  type IMPORTANCE_MODES,
  importanceMetrics,
  withImportance,
} from '../../../src/train/policy/importance.js';
import { KlControl } from '../../../src/train/policy/kl.js';
import type { AnswerReward } from '../../../src/train/policy/records.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

interface Case {
  readonly algorithm: 'grpo' | 'gspo' | 'rloo' | 'cispo' | 'sapo';
  readonly loss_type?: string;
  /** Of TRL: the coefficient of its KL penalty. */
  readonly beta: number;
  readonly epsilon: number;
  /** Of cispo the bound itself, elsewhere 1 less. */
  readonly epsilon_high: number;
  readonly sapo_temperature_pos?: number;
  readonly sapo_temperature_neg?: number;
  readonly importance?: {
    readonly mode: (typeof IMPORTANCE_MODES)[number];
    /** 0: none. */
    readonly clip_min: number;
    readonly clip_max: number;
    readonly logged: Readonly<Record<string, number>>;
  };
  readonly loss: number;
  readonly grad_norm: number;
}

const golden = JSON.parse(readFileSync(new URL('../../golden/trl_policy.json', import.meta.url), 'utf8')) as {
  readonly longest: number;
  readonly prompts: number[][];
  readonly samples: (Record<'tokens' | 'old' | 'ref' | 'before' | 'sampler', number[]> &
    Record<'prompt' | 'advantage', number>)[];
  readonly cases: Case[];
  readonly several: {
    readonly rewards: number[][];
    readonly weights: number[];
    readonly advantages: Record<'sum_then_normalize' | 'normalize_then_sum', number[]>;
  };
};

const device = openTest();
afterAll(() => device.dispose());

/** With `isStale`, the old log-probs of another policy, and those of a sampler that differs from it. */
const groupsOf = (isStale: boolean) =>
  golden.prompts.map(
    (_, item): CreditedSolutions => ({
      item,
      answers: golden.samples
        .filter(({ prompt }) => prompt === item)
        .map(({ tokens, old, before, sampler, ref, advantage }) => ({
          tokens,
          text: '',
          truncated: false,
          oldLogprobs: isStale ? before : old,
          refLogprobs: ref,
          samplerLogprobs: isStale ? sampler : [],
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
  { algorithm, loss_type, beta, epsilon, epsilon_high, importance, ...temperatures }: Case,
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
      ...(algorithm === 'grpo' ? { loss_type } : {}),
      ...(algorithm === 'cispo' ? {} : { cliprange: epsilon }),
      cliprange_high: algorithm === 'cispo' ? epsilon_high - 1 : epsilon_high,
      ...(algorithm === 'sapo'
        ? Object.fromEntries(Object.entries(temperatures).filter(([key]) => key.startsWith('sapo')))
        : {}),
      ...(importance && {
        importance_sampling_correction: true,
        importance_sampling_mode: importance.mode,
        importance_sampling_clip_min: importance.clip_min,
        importance_sampling_clip_max: importance.clip_max,
      }),
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
  const given = groupsOf(importance !== undefined);
  const groups = importance ? withImportance<SolutionGroup>(given, settings) : given;
  const { loss, metrics } = await objective.gradients(groups, 0);
  const grads = await roles.policyParameters.grads.readFloats();
  roles.dispose();
  const logged = importanceMetrics(groups, settings);
  return { loss, clipped: metrics.clip_fraction, logged, grad_norm: Math.hypot(...grads) };
}

it.each(golden.cases)(
  '$algorithm $loss_type, KL $beta, sampler corrected by $importance.mode',
  async (expected) => {
    for (const more of [
      { micro_batch_tokens: 4096, branches: true },
      { micro_batch_tokens: 12, branches: false },
    ]) {
      const found = await measured(expected, more);
      expect(found.loss).toBeCloseTo(expected.loss, 4);
      expect(Math.abs(found.grad_norm / expected.grad_norm - 1)).toBeLessThan(2e-4);
      // Some ratios are outside the range, so that the clip is tested too.
      if (expected.algorithm === 'sapo') expect(found.clipped).toBeUndefined();
      else expect(found.clipped).toBeGreaterThan(0);
      const { logged } = expected.importance ?? {};
      if (!logged) continue;
      for (const which of ['min', 'mean', 'max'])
        expect(found.logged[`importance_ratio_${which}`]).toBeCloseTo(
          logged[`importance_sampling_ratio/${which}`] as number,
          4,
        );
      expect(found.logged.sampler_difference_max).toBeCloseTo(
        logged['sampling_logp_difference/max'] as number,
        4,
      );
    }
  },
);

it('advantages of several rewards, normalised after their sum or before it (GDPO)', async () => {
  const { rewards, weights, advantages } = golden.several;
  const each = (tokens: number[]) => ({
    tokens,
    oldLogprobs: [],
    refLogprobs: [],
    samplerLogprobs: [],
    values: [],
  });
  const answers = rewards.map(() => ({ ...each([3, 4]), text: '', truncated: false }));
  const byAnswer = rewards.map((own): AnswerReward => {
    const parts = own.map((value, k) => ({ weight: weights[k] as number, value }));
    const value = parts.reduce((sum, part) => sum + part.weight * part.value, 0);
    return { value, byToken: [0, value], parts };
  });
  const halves = <T>(list: readonly T[]) => [list.slice(0, 4), list.slice(4)];
  const groups = halves(answers).map((own, item) => ({ item, answers: own }));
  for (const [algorithm, how] of [
    ['grpo', 'sum_then_normalize'],
    ['gdpo', 'normalize_then_sum'],
  ] as const) {
    const settings = { gamma: 1, lam: 1, whiten_advantages: true, group_baseline: false } as const;
    const advantage = solutionAdvantage(device, {
      algorithm,
      ...settings,
      loss_type: 'dapo',
      truncated: 'lowest',
    });
    const credited = (await advantage.credit(groups, halves(byAnswer))).flatMap((group) => group.answers);
    credited.forEach((found, i) => {
      expect(found.advantages).toHaveLength(2);
      for (const value of found.advantages) expect(value).toBeCloseTo(advantages[how][i] as number, 5);
    });
  }
});
