// Solutions as branches of their prompt: the same log-probs as alone, and a first ratio of exactly 1.
import { afterAll, expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { solutionAdvantage } from '../../../src/methods/ppo/advantage.js';
import type { PpoRunConfig } from '../../../src/methods/ppo/config.js';
import { solutionObjective } from '../../../src/methods/ppo/objective.js';
import { createPpoRoles, type PpoRoles } from '../../../src/methods/ppo/roles.js';
import { type SolutionGroup, solutionRollouts } from '../../../src/methods/ppo/rollout.js';
import { answeredPrompts } from '../../../src/methods/ppo/sequences.js';
import { scoresInUpdate, settled } from '../../../src/methods/ppo/settings.js';
import { loadDecoder } from '../../../src/models/load.js';
import { hiddenStates } from '../../../src/sequences/forward.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { KlControl } from '../../../src/train/policy/kl.js';
import { localSolutions } from '../../../src/train/solutions/local-solutions.js';
import type { StepPart } from '../../../src/train/stage.js';
import { goldenDirectory } from '../../models/golden.js';
import { f32Bound, openTest } from '../../ops/devices.js';

const device = openTest();
const tokenizer = byteTokenizer();
const opened: PpoRoles[] = [];
afterAll(() => {
  for (const roles of opened) roles.dispose();
  device.dispose();
});

const PROMPTS = [
  [65, 66, 67, 68, 69],
  [90, 91, 92],
].map((ids, id) => ({ id, ids }));
const promptOf = (item: number) => PROMPTS[item]!;

async function setUp(ppo: object, lora: unknown = { r: 4, lora_alpha: 8, lora_dropout: 0 }) {
  const config = completeRunConfig({
    method: 'ppo',
    model: { base: goldenDirectory('llama3'), dtype: 'f32' },
    lora,
    data: { source: 'word_problems', max_length: 64 },
    rollout: { num_generations: 3, max_new_tokens: 9, temperature: 0.9 },
    ppo: { micro_batch_tokens: 64, critic_warmup: 0, ...ppo },
  } as never) as PpoRunConfig;
  const roles = await createPpoRoles(device, config, tokenizer);
  opened.push(roles);
  // Away from its first values, so that policy and reference differ.
  const values = await roles.policyParameters.values.readFloats();
  roles.policyParameters.write(values.map((value, i) => value + 0.05 * Math.sin(i)));
  const settings = settled(config);
  const common = { roles, settings, promptOf, temperature: 0.9, microBatchTokens: 64 };
  const source = localSolutions({
    decoder: roles.decoder,
    role: roles.policy,
    tokenizer,
    sampling: config.rollout,
    seed: 5,
  });
  const parts: StepPart[] = [];
  const report = (part: StepPart) => parts.push(part);
  const batch = { items: [0, 1], iteration: 2, signal: new AbortController().signal, report };
  const sampled = { ...common, source, n: config.rollout.num_generations };
  const creditOf = (groups: readonly SolutionGroup[]) =>
    solutionAdvantage(device, settings).credit(
      groups,
      groups.map(({ answers }) =>
        answers.map(({ tokens }, i) => ({
          value: i,
          byToken: tokens.map((_, t) => (t + 1 === tokens.length ? i : 0)),
        })),
      ),
    );
  const groups = (await solutionRollouts(sampled).rollOut(batch))!;
  const credited = await creditOf(groups);
  const unscored = async () =>
    creditOf((await solutionRollouts({ ...sampled, scoredLater: true }).rollOut(batch))!);
  const objective = solutionObjective({ ...common, kl: new KlControl(settings), longest: 9, steps: 10 });
  return { roles, groups, credited, unscored, objective, settings, parts: [...parts] };
}

const gradient = async ({ policyParameters }: PpoRoles) => policyParameters.grads.readFloats();

it('a prompt with many solutions is cut into sequences that fit, in order', () => {
  const solutions = [
    [1, 2, 3],
    [1, 2],
    [4, 5, 6, 7],
  ];
  const answers = solutions.map((tokens) => ({ tokens }));
  const parts = answeredPrompts([8, 9], 3, answers, { budget: 7, branches: true });
  expect(parts.map(({ ids }) => ids.length)).toEqual([5, 6]);
  expect(parts.flatMap((part) => part.solutions.map(({ rows }) => rows.map(({ token }) => token)))).toEqual(
    solutions,
  );
  expect(answeredPrompts([8, 9], 3, answers, { budget: 99, branches: false }).length).toBe(3);
});

it('a rollout says how far it is: solutions drawn with their tokens, then those that are scored', async () => {
  const { parts, groups } = await setUp({ algorithm: 'ppo' });
  const of = (unit: string) => parts.filter((part) => part.unit === unit);
  expect(of('rollout: solution').map(({ done, total }) => [done, total])).toEqual(
    [1, 2, 3, 4, 5, 6].map((done) => [done, 6]),
  );
  const drawn = groups.flatMap(({ answers }) => answers.flatMap(({ tokens }) => tokens)).length;
  expect(of('rollout: solution').at(-1)?.tokens).toBe(drawn);
  expect(of('rollout: scored solution').at(-1)).toMatchObject({ done: 6, total: 6 });
});

it('branches have the log-probs and values of separate sequences, and less to compute', async () => {
  const [together, apart] = [await setUp({ branches: true }), await setUp({ branches: false })];
  const bound = f32Bound(device, 5e-6, goldenDirectory('llama3'));
  const flat = ({ groups }: typeof together) => groups.flatMap(({ answers }) => answers);
  for (const key of ['tokens', 'samplerLogprobs'] as const)
    expect(flat(together).map((answer) => answer[key])).toEqual(flat(apart).map((answer) => answer[key]));
  for (const key of ['oldLogprobs', 'refLogprobs', 'values'] as const) {
    const expected = flat(apart).flatMap((answer) => answer[key]);
    flat(together)
      .flatMap((answer) => answer[key])
      .forEach((value, i) => {
        expect(Math.abs(value - expected[i]!)).toBeLessThan(bound);
      });
  }
  flat(together).forEach(({ endValue }, i) => {
    expect(Math.abs(endValue! - flat(apart)[i]!.endValue!)).toBeLessThan(bound);
  });
  const [a, b] = [
    await together.objective.gradients(together.credited, 0),
    await apart.objective.gradients(apart.credited, 0),
  ];
  expect(Math.abs(a.loss - b.loss)).toBeLessThan(bound);
  expect(a.tokens).toBeLessThan(b.tokens);
  const [first, second] = [await gradient(together.roles), await gradient(apart.roles)];
  const scale = Math.max(...second.map(Math.abs));
  first.forEach((value, i) => {
    expect(Math.abs(value - second[i]!) / scale).toBeLessThan(1e-4);
  });
});

it.each(['ppo', 'grpo', 'rloo', 'reinforce_pp', 'gspo'])(
  '%s: the first ratio is exactly 1',
  async (algorithm) => {
    const { objective, credited, groups } = await setUp({ algorithm });
    const { metrics } = await objective.gradients(credited, 0);
    expect([metrics.ratio_max, metrics.clip_fraction, metrics.old_kl_k3]).toEqual([1, 0, 0]);
    expect(metrics.ratio_mean).toBeCloseTo(1, 6);
    const drift = groups
      .flatMap(({ answers }) => answers)
      .flatMap(({ samplerLogprobs, oldLogprobs }) =>
        samplerLogprobs.map((value, t) => Math.abs(value - oldLogprobs[t]!)),
      );
    expect(Math.max(...drift)).toBeLessThan(1e-4);
    if (algorithm === 'ppo') expect(groups[0]!.answers[0]!.values.length).toBeGreaterThan(0);
    else expect(groups[0]!.answers[0]!.values).toEqual([]);
  },
);

it.each([
  { algorithm: 'grpo' },
  { algorithm: 'grpo', reference: 'none', kl_coef: 0 },
  { algorithm: 'gspo' },
  { algorithm: 'rloo', kl_coef: 0 },
  { algorithm: 'reinforce_pp', kl_coef: 0, branches: false },
])('%o: scored in the update, to the bit as if scored before', async (ppo) => {
  const { objective, credited, unscored, roles, settings } = await setUp(ppo);
  expect(scoresInUpdate(settings)).toBe(true);
  const before = await objective.gradients(credited, 0);
  const gradientBefore = await gradient(roles);
  const later = await unscored();
  expect(later.flatMap(({ answers }) => answers).every(({ oldLogprobs }) => oldLogprobs.length === 0)).toBe(
    true,
  );
  const { scored, ...after } = await objective.gradients(later, 0);
  expect(scored).toEqual(credited);
  expect(before).toEqual(after);
  expect(await gradient(roles)).toEqual(gradientBefore);
  expect(Math.max(...gradientBefore.map(Math.abs))).toBeGreaterThan(0);
});

it.each([
  { algorithm: 'ppo' },
  { algorithm: 'rloo' },
  { algorithm: 'grpo', num_ppo_epochs: 2 },
  { algorithm: 'grpo', num_mini_batches: 2 },
  { algorithm: 'grpo', old_logprobs: 'sampler' },
  { algorithm: 'grpo', kl_target: 3 },
])('%o: the rollout is scored before the update', async (ppo) => {
  expect(scoresInUpdate((await setUp(ppo)).settings)).toBe(false);
});

it.each(['dapo', 'grpo', 'dr_grpo'])(
  '%s: smaller micro-batches give the same gradient',
  async (loss_type) => {
    const [whole, cut] = [
      await setUp({ algorithm: 'grpo', loss_type, micro_batch_tokens: 4096 }),
      await setUp({ algorithm: 'grpo', loss_type, branches: false }),
    ];
    await whole.objective.gradients(whole.credited, 0);
    await cut.objective.gradients(cut.credited, 0);
    const [a, b] = [await gradient(whole.roles), await gradient(cut.roles)];
    const scale = Math.max(...b.map(Math.abs));
    expect(scale).toBeGreaterThan(0);
    a.forEach((value, i) => {
      expect(Math.abs(value - b[i]!) / scale).toBeLessThan(1e-4);
    });
  },
);

it('metrics are means over tokens also where weights do not add up to 1', async () => {
  const { objective, credited } = await setUp({ algorithm: 'grpo', loss_type: 'dr_grpo', kl_coef: 0 });
  // As many tokens as a third of the longest that there may be.
  const short = credited.map((group) => ({
    ...group,
    answers: group.answers.map((own) => {
      const cut = <T>(list: readonly T[]) => list.slice(0, 3);
      const { tokens, oldLogprobs, refLogprobs, samplerLogprobs, advantages, returns } = own;
      return {
        ...own,
        tokens: cut(tokens),
        oldLogprobs: cut(oldLogprobs),
        refLogprobs: cut(refLogprobs),
        samplerLogprobs: cut(samplerLogprobs),
        advantages: cut(advantages),
        returns: cut(returns),
      };
    }),
  }));
  const { metrics } = await objective.gradients(short, 0);
  expect(metrics.ratio_mean).toBeCloseTo(1, 6);
  expect(metrics.entropy).toBeGreaterThan(2);
});

it.each(['trunk', 'adapter', 'model'])('a critic on its %s warms up alone', async (critic) => {
  const { roles, objective, credited } = await setUp({ critic, critic_warmup: 5 });
  await objective.gradients(credited, 4);
  const moved = (await gradient(roles)).filter((value) => value !== 0).length;
  // Of a shared trunk, the head alone: a weight for each hidden feature and a bias.
  expect(moved).toBe(critic === 'trunk' ? roles.decoder.config.outputSize + 1 : 0);
  const own = roles.critic?.own;
  expect(own === undefined).toBe(critic === 'trunk');
  if (own) expect((await own.parameters.grads.readFloats()).some((value) => value !== 0)).toBe(true);
  await objective.gradients(credited, 5);
  expect((await gradient(roles)).filter((value) => value !== 0).length).toBeGreaterThan(1000);
  // Every parameter has one optimizer: a head on the trunk its own, so that the policy's can wait.
  const trained = roles.critic!.trained.list.map(({ name }) => name);
  expect(objective.optimizers.critic?.optimizer.parameters).toBe(roles.critic?.trained);
  const policy = roles.policyTrained.list.map(({ name }) => name);
  expect(policy.some((name) => name.startsWith('value_head.'))).toBe(false);
  if (!own) expect([...policy, ...trained]).toEqual(roles.policyParameters.list.map(({ name }) => name));
});

it('trains every parameter without lora, against a second copy', async () => {
  const { roles, objective, credited, groups } = await setUp({ algorithm: 'grpo' }, 'none');
  const { metrics } = await objective.gradients(credited, 0);
  expect(metrics.ratio_max).toBe(1);
  const { oldLogprobs, refLogprobs } = groups[0]!.answers[0]!;
  expect(oldLogprobs).not.toEqual(refLogprobs);
  expect((await gradient(roles)).some((value) => value !== 0)).toBe(true);
});

it('a solution with a prompt of its own is a plain sequence, which a sliding window reads', async () => {
  const solutions = [[70, 71, 72, 73, 74, 75], [76]].map((tokens) => ({ tokens }));
  const budget = 64;
  const [together] = answeredPrompts([65, 66, 67, 68, 69], 0, solutions, { budget, branches: true });
  expect(together?.branch).toBeDefined();
  const alone = answeredPrompts([65, 66, 67, 68, 69], 0, solutions, { budget, branches: false });
  expect(alone.map(({ branch }) => branch)).toEqual([undefined, undefined]);
  const windowed = await loadDecoder(device, goldenDirectory('mistral'), { dtype: 'f32' });
  const states = () => hiddenStates(windowed, {}, alone);
  expect(device.scope(() => states().offsets)).toHaveLength(3);
  windowed.dispose();
});
