// The loop of policy learning on parameters of a few numbers: which of them a step moves.
import { afterAll, expect, it } from 'vitest';
import { TrainableParameters } from '../../src/autograd/parameters.js';
import { inMemory } from '../../src/data/dataset.js';
import { AdamW } from '../../src/train/adamw.js';
import type { Answer, CreditedGroup, Group, PolicyGradients } from '../../src/train/policy/records.js';
import { fewMiniBatches, type PolicySettings, policyStage } from '../../src/train/policy/stage.js';
import type { StepPart } from '../../src/train/stage.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
const made: { dispose(): void }[] = [];
afterAll(() => {
  for (const each of made.reverse()) each.dispose();
  device.dispose();
});

const OPTIONS = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.5, maxGradNorm: 1 };
const settings = {
  ...{ rollout_batch: 1, num_ppo_epochs: 1, num_mini_batches: 1, load_best_model_at_end: false },
  ...{ kl_in: 'loss', kl_coef: 0, learning_rate: 0.1, lr_scheduler_type: 'constant', warmup_ratio: 0 },
} as unknown as PolicySettings;

const answer: Answer = { tokens: [1], oldLogprobs: [-1], refLogprobs: [], samplerLogprobs: [-1], values: [] };

/** One step of a stage on three weights and a head of one, whose answer counts `share`. */
async function step(
  share: number,
  more: Partial<PolicyGradients> = {},
  rolled: {
    readonly settings?: Partial<PolicySettings>;
    readonly rewards?: (draw: number) => number[];
    readonly outcome?: number;
  } = {},
) {
  const parameters = new TrainableParameters(device, [
    { name: 'weight', shape: [3], init: Float32Array.of(1, 2, 3) },
    { name: 'head', shape: [1], init: Float32Array.of(4) },
  ]);
  made.push(parameters);
  const [policy, head] = [
    parameters.part((name) => name === 'weight'),
    parameters.part((name) => name === 'head'),
  ];
  const critic = new AdamW(head, OPTIONS);
  let asked = 0;
  const draws: number[] = [];
  const { rewards: rewardsOf = () => [1], outcome: one } = rolled;
  const withOutcome = one === undefined ? {} : { outcome: one };
  const training = policyStage<Group>({
    ...{ name: 'ppo', batching: {}, trains: parameters, seed: 1, begin: async () => {} },
    settings: { ...settings, ...rolled.settings },
    iterations: { batches: inMemory([[0]]), epochAt: () => 1 },
    optimizer: () => new AdamW(policy, OPTIONS),
    parts: () => ({
      rollouts: {
        rollOut: async ({ items, iteration, report }) => {
          report?.({ unit: 'rollout: solution', done: 1, total: 2 });
          draws.push(iteration);
          return items.map((item) => ({ item, answers: rewardsOf(0).map(() => answer) }));
        },
      },
      rewards: {
        reward: async () => ({
          byGroup: [
            rewardsOf(draws.length - 1).map((value) => ({ value, byToken: [value], ...withOutcome })),
          ],
          metrics: {},
        }),
      },
      advantage: {
        credit: async (groups) =>
          groups.map(
            ({ item, answers }): CreditedGroup<Group> => ({
              item,
              answers: answers.map((own) => ({
                ...{ ...own, reward: 1, rewards: [1], advantages: [1], returns: [1], share },
              })),
            }),
          ),
      },
      objective: {
        optimizers: { critic: { optimizer: critic, rateAt: () => 0.1 } },
        async gradients() {
          asked++;
          parameters.zeroGrads();
          parameters.get('head')?.grad?.write(Float32Array.of(1));
          return { loss: 1, terms: { loss: 1 }, metrics: {}, shown: {}, tokens: 1, ...more };
        },
      },
    }),
  }).open();
  made.push(training);
  const parts: StepPart[] = [];
  const outcome = await training.step(0, new AbortController().signal, (part) => parts.push(part));
  const values = [...(await parameters.values.readFloats())];
  const steps = Object.fromEntries(
    Object.entries(training.optimizers).map(([name, own]) => [name, own.steps]),
  );
  return { outcome, asked, values, steps, parts, draws };
}

it('takes no step where every answer is masked: not even weights decay', async () => {
  const { outcome, asked, values, steps } = await step(0);
  expect(outcome).toBeDefined();
  expect([asked, values, steps]).toEqual([0, [1, 2, 3, 4], { ppo: 0, critic: 0 }]);
});

it('while the policy waits its weights do not decay and its optimizer does not count', async () => {
  const { values, steps } = await step(1, { policyWaits: true });
  expect(values.slice(0, 3)).toEqual([1, 2, 3]);
  expect(values[3]).toBeLessThan(4);
  expect(steps).toEqual({ ppo: 0, critic: 1 });
  const both = await step(1);
  // Its gradients are 0, so that all that moves them is the decay.
  expect(both.values[0]).toBeCloseTo(0.95, 6);
  expect(both.steps).toEqual({ ppo: 1, critic: 1 });
});

it('skips a step whose loss is not finite, the critic alone too', async () => {
  const { outcome, values } = await step(1, { policyWaits: true, terms: { loss: Number.NaN } });
  expect(outcome?.nonFinite).toContain('loss NaN');
  expect(values).toEqual([1, 2, 3, 4]);
});

it('a step says how far its rollout is', async () => {
  expect((await step(1)).parts).toEqual([{ unit: 'rollout: solution', done: 1, total: 2, serves: 1 }]);
});

it('draws a group of equal rewards again, with other numbers, until they differ or the limit is reached', async () => {
  const settings = { resample_equal: 3 };
  const rewards = (draw: number) => (draw < 2 ? [1, 1] : [1, 0]);
  const found = await step(1, {}, { settings, rewards });
  expect(new Set(found.draws).size).toBe(3);
  expect(found.outcome?.metrics).toMatchObject({ resampled_groups: 2, reward_mean: 1 });
  expect((await step(1, {}, { settings, rewards: () => [1, 1] })).draws).toHaveLength(4);
  expect((await step(1, {}, { settings, rewards: () => [1, 0] })).draws).toHaveLength(1);
  expect((await step(1, {}, { rewards })).draws).toHaveLength(1);
  // Rewards that differ by length alone.
  expect((await step(1, {}, { settings, rewards: () => [1, 0], outcome: 0 })).draws).toHaveLength(4);
});

it('says which rollout batches have fewer items than mini-batches are asked for', () => {
  const few = (num_mini_batches: number) =>
    fewMiniBatches(
      {
        settings: { ...settings, num_mini_batches },
        iterations: { batches: inMemory([[0, 1, 2], [3, 4, 5], [6]]), epochAt: () => 1 },
      },
      { key: 'ppo.num_mini_batches', noun: 'problems' },
    );
  expect(few(1)).toBeUndefined();
  expect(few(3)).toBe(
    'ppo.num_mini_batches is 3, and 1 of 3 rollout batches has fewer problems, which stay whole: there are as many optimizer steps there as problems',
  );
  expect(few(4)).toContain('3 of 3 rollout batches have fewer problems');
});
