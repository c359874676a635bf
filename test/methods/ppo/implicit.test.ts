// The implicit reward model of `method: ppo` that learns online, on the built-in word-problem model.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel } from '../../../src/api/model.js';
import { inMemory } from '../../../src/data/dataset.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { runBatch } from '../../../src/methods/offline/answers/batch.js';
import { heldOutPlan } from '../../../src/methods/offline/answers/plan.js';
import { implicitPrmObjective } from '../../../src/methods/offline/implicit-prm.js';
import type { PpoRunConfig } from '../../../src/methods/ppo/config.js';
import { ImplicitRewards } from '../../../src/methods/ppo/implicit.js';
import { createPpoRoles } from '../../../src/methods/ppo/roles.js';
import type { SolutionGroup } from '../../../src/methods/ppo/rollout.js';
import { settled } from '../../../src/methods/ppo/settings.js';
import { train } from '../../../src/methods/run.js';
import { baseDirectory } from '../../../src/models/base.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { offlineSequence } from '../../../src/scoring/implicit/items.js';
import { implicitScorers } from '../../../src/scoring/implicit/scorer.js';
import { readSums } from '../../../src/scoring/implicit/sums.js';
import { answerTokenizer } from '../../../src/scoring/implicit/tokens.js';
import { judgeSteps } from '../../../src/scoring/judge.js';
import { AdamW, adamSettings } from '../../../src/train/adamw.js';
import { applyGradients } from '../../../src/train/update.js';
import { f32Bound, openTest } from '../../ops/devices.js';

const device = openTest();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-implicit-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
});
afterAll(() => {
  device.dispose();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const input = {
  method: 'ppo',
  model: { base: 'word-problems-misread', dtype: 'f32' },
  lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
  data: { source: 'word_problems', word_problems: { samples: 60, levels: [1] }, max_length: 256 },
  rollout: { num_generations: 4, max_new_tokens: 40, template: '{problem}\n' },
  reward: { rule: { weight: 1 }, implicit: { weight: 2, beta: 0.5, learning_rate: 1e-2 } },
  ppo: { algorithm: 'prime', learning_rate: 1e-3, rollout_batch: 4, max_iterations: 3, kl_coef: 0 },
  run: { device: 'cpu', threads: 1, logging_steps: 1 },
  eval: { max_samples: 4 },
};

const PROBLEMS = [
  { problem: 'Ann has 3 pears. Bob has 4 pears. How many pears do they have together?', answer: '7' },
  { problem: 'Tom has 9 coins. Tom loses 5 coins. How many coins does Tom have now?', answer: '4' },
];
const TEXTS = [
  ['together: 3 + 4 = 7', 'answer: 7'],
  ['together: 3 + 4 = 8', 'answer: 8'],
];

async function opened() {
  const config = completeRunConfig(input as never) as PpoRunConfig;
  const tokenizer = await configuredTokenizer(config.model);
  const roles = await createPpoRoles(device, config, tokenizer);
  const template = config.rollout.template;
  const tokens = answerTokenizer(tokenizer, template);
  const groups: SolutionGroup[] = PROBLEMS.map((_, item) => ({
    item,
    answers: TEXTS.map((steps) => {
      const { ids } = tokens.answer(
        {},
        steps.map((text) => ({ text, label: null, kind: 'normal' as const })),
        { label: null },
      );
      const text = `${steps.join('\n')}\n`;
      const none: number[] = [];
      return {
        tokens: ids,
        text,
        truncated: false,
        oldLogprobs: none,
        refLogprobs: none,
        values: none,
        samplerLogprobs: none,
      };
    }),
  }));
  const role = roles.implicit as NonNullable<typeof roles.implicit>;
  const rewards = new ImplicitRewards({
    role,
    reward: config.reward.implicit,
    settings: settled(config),
    promptOf: (item) => ({ ids: tokens.prompt(PROBLEMS[item] as (typeof PROBLEMS)[number]) }) as never,
    problemOf: (item) => PROBLEMS[item] as never,
    microBatchTokens: 512,
    maxSkipped: 3,
  });
  return { config, tokenizer, template, tokens, roles, role, groups, rewards };
}

describe('an implicit reward model that learns online', () => {
  it('begins without a word, learns outcomes, and gives steps what the scorer of steps gives', async () => {
    const { config, tokenizer, template, roles, role, groups, rewards } = await opened();
    const { signal } = new AbortController();
    const before = await rewards.byToken(groups, signal);
    expect(before?.flat().every((reward) => Math.abs(reward) < 1e-4)).toBe(true);
    const losses: number[] = [];
    for (let iteration = 0; iteration < 8; iteration++) {
      await rewards.byToken(groups, signal);
      const { metrics } = await rewards.learn({ items: [0, 1], iteration, signal });
      losses.push(metrics.implicit_loss as number);
    }
    // Of log-ratios 0; the first problem's first solution is right, the other three are wrong.
    expect(losses[0]).toBeCloseTo(Math.LN2, 4);
    expect(losses.at(-1)).toBeLessThan(0.6);

    const after = (await rewards.byToken(groups, signal)) as number[][];
    const { reward: scorer } = implicitScorers(role, role.reference, {
      ...{ tokenizer, template, beta: config.reward.implicit.beta },
      maxLength: 256,
    });
    const solutions = PROBLEMS.flatMap(({ problem }) => TEXTS.map((steps) => ({ problem, steps })));
    const scored = (await scorer.score(solutions as never)) ?? [];
    const sum = (values: readonly number[]) => values.reduce((all, value) => all + value, 0);
    for (const [i, { scores }] of scored.entries())
      expect(sum(after[i] as number[])).toBeCloseTo(2 * sum(scores as number[]), 3);
    expect(new Set(after.map((values) => sum(values).toFixed(3))).size).toBe(4);
    for (const optimizer of Object.values(rewards.optimizers)) optimizer.dispose();
    roles.dispose();
  });

  it('takes the steps of the offline objective on the same answers', async () => {
    const online = await opened();
    const offline = await opened();
    const { role } = offline;
    const items = online.groups.flatMap(({ item, answers }) =>
      answers.map(({ tokens }, i) => ({
        problem: item,
        prompt: online.tokens.prompt(PROBLEMS[item] as (typeof PROBLEMS)[number]),
        answers: [
          { ids: tokens, from: 0, steps: [], label: item === 0 && i === 0 ? (1 as const) : (0 as const) },
        ],
      })),
    );
    const objective = implicitPrmObjective(online.config.reward.implicit);
    const plan = heldOutPlan(inMemory(items), { pairs: false, maxLength: 256 });
    const { signal } = new AbortController();
    const optimizer = new AdamW(
      role.parameters,
      adamSettings({
        ...settled(offline.config),
        max_grad_norm: offline.config.reward.implicit.max_grad_norm,
      }),
    );
    const { reference } = role;
    const sums = await readSums(reference.decoder, reference.role, items.map(offlineSequence));
    const references = sums.map((each) => [each]);
    // Each of the two programs sums n log-probs of an answer in f32, of policy and reference: four sums S, of which each rounds
    // n times, by up to 2^-24·S·k/n at its k-th term. Such roundings add as squares (f32Bound), and three times that is hardly ever
    // reached. The loss is a mean over answers that changes by at most beta times a log-ratio.
    const squares = sums.map(
      ([sum], i) => ((items[i]?.answers[0]?.ids.length ?? 0) / 3) * (2 ** -24 * (sum ?? 0)) ** 2,
    );
    const rounding = Math.sqrt(4 * squares.reduce((all, square) => all + square, 0)) / sums.length;
    const bound = 3 * online.config.reward.implicit.beta * rounding;
    for (let iteration = 0; iteration < 3; iteration++) {
      await online.rewards.byToken(online.groups, signal);
      const { metrics } = await online.rewards.learn({ items: [0, 1], iteration, signal });
      const { metrics: expected } = await runBatch(
        { decoder: role.decoder, role: role.role, objective, plan, references, microBatchTokens: 512 },
        0,
        { parameters: role.parameters, dropout: role.dropout(iteration) },
      );
      const { gradNorm } = (await applyGradients(optimizer, 1e-2, expected)) as { gradNorm: number };
      expect(gradNorm).toBeGreaterThan(0);
      expect(Math.abs((metrics.implicit_loss as number) - expected.loss)).toBeLessThan(
        f32Bound(device, bound, baseDirectory('word-problems-misread')),
      );
      // At log-ratios of 0 rounding decides on which side of one half they are.
      if (iteration > 0) expect(metrics.implicit_accuracy).toBeCloseTo(expected.accuracy as number, 5);
      expect((metrics.implicit_grad_norm as number) / gradNorm).toBeCloseTo(1, 3);
    }
    for (const each of [
      optimizer,
      ...Object.values(online.rewards.optimizers),
      ...Object.values(offline.rewards.optimizers),
    ])
      each.dispose();
    for (const { roles } of [online, offline]) roles.dispose();
  });

  it('is trained by a run beside the policy, logged, saved, and read again', async () => {
    const output = join(folder, 'run');
    expect((await train(input as never, { output })).status).toBe('finished');
    const lines = readFileSync(join(output, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const steps = lines.filter(({ implicit_loss: loss }) => loss !== undefined);
    expect(steps.map(({ iteration }) => iteration)).toEqual([0, 1, 2]);
    expect(steps[0].reward_implicit).toBeCloseTo(0, 4);
    expect(steps[0].implicit_loss).toBeCloseTo(Math.LN2, 4);
    expect(steps[2].reward_implicit).not.toBeCloseTo(0, 3);
    const model = await loadModel(device, join(output, 'implicit'));
    const { problem } = PROBLEMS[0] as (typeof PROBLEMS)[number];
    const judged = await judgeSteps(model, problem, TEXTS[0] as string[]);
    expect(judged.map(({ probability }) => probability)).toEqual([
      expect.closeTo(0.5, 0),
      expect.closeTo(0.5, 0),
    ]);
    expect(judged.every(({ probability }) => probability !== 0.5)).toBe(true);
    model.dispose();
  });

  it('is refused where it has no place', () => {
    const refused = (changes: object) => () => completeRunConfig({ ...input, ...changes } as never);
    expect(refused({ lora: 'none' })).toThrow(
      'reward.implicit is an adapter beside the policy on one base, and lora is none',
    );
    expect(refused({ reward: { rule: { weight: 1 } } })).toThrow(
      'ppo.algorithm "prime" compares the rewards of tokens',
    );
  });
});
