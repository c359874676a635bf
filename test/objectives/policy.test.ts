// PPO and the verdict constraint from log-probs through the tape, against torch's autograd in float64.
import { afterAll, describe, expect, it } from 'vitest';
import { ppo } from '../../src/objectives/ppo.js';
import { type ConstraintForm, verdictConstraint } from '../../src/objectives/verdict-constraint.js';
import { gae, groupAdvantages, whiten } from '../../src/ops/advantage.js';
import { headLogprobs, headSelect } from '../../src/ops/head.js';
import { reshape } from '../../src/ops/memory.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { differentiate, readGolden, sum } from '../ops/objective-cases.js';
import { throughTape, vector } from './through-tape.js';

type Lists<Names extends string> = Record<Names, number[]>;

const golden = readGolden('objectives') as {
  gae: (Lists<'rewards' | 'values' | 'advantages' | 'returns'> & {
    /** Undefined for a single token. */
    whitened: number[] | null;
    gamma: number;
    lam: number;
  })[];
  ppo: (Lists<'logprobs' | 'old_logprobs' | 'advantages' | 'values' | 'old_values' | 'returns' | 'mask'> &
    Lists<'grad_logprobs' | 'grad_values'> &
    Record<'clip_range' | 'vf_coef' | 'policy_loss' | 'value_loss' | 'total' | 'clip_fraction', number>)[];
  grpo: {
    rewards: number[];
    advantages: number[];
    logprobs: number[][];
    old_logprobs: number[][];
    ref_logprobs: number[][];
    mask: number[][];
    beta: number;
    clip_range: number;
    loss: number;
    grad_logprobs: number[][];
  }[];
};
const vectors = readGolden('vectors') as {
  ppo: Lists<'whitened_bessel' | 'whitened_population' | 'advantages'>;
  group: Lists<'rewards' | 'grpo' | 'dr_grpo' | 'rloo'>;
  kl_estimators: Lists<'logp' | 'ref_logp' | 'k1' | 'k2' | 'k3'>;
  stepamc: Lists<'logits' | 'const_full_vocab_ce' | 'const_two_token_ce' | 'grad_full' | 'grad_two'>;
};

const device = openTest();
afterAll(() => device.dispose());

describe('ppo', () => {
  it.each(golden.ppo)('gives the golden losses and gradients ($logprobs.length tokens)', async (c) => {
    const found = await throughTape(device, { logprobs: c.logprobs, values: c.values }, (on) =>
      ppo(
        {
          ...on,
          oldLogprobs: vector(device, c.old_logprobs),
          advantages: vector(device, c.advantages),
          weights: vector(
            device,
            c.mask.map((kept) => kept / sum(c.mask)),
          ),
          oldValues: vector(device, c.old_values),
          returns: vector(device, c.returns),
        },
        { clipLow: c.clip_range, clipHigh: c.clip_range, valueCoef: c.vf_coef, valueClip: c.clip_range },
      ),
    );
    expect(found.loss).toBeCloseTo(c.total, 6);
    expect(found.statistics.policy_loss).toBeCloseTo(c.policy_loss, 6);
    expect(found.statistics.value_loss).toBeCloseTo(c.value_loss, 6);
    expect(found.statistics.clip_fraction).toBeCloseTo(c.clip_fraction, 6);
    expect(found.statistics.weight).toBeCloseTo(1, 6);
    expect(maxDifference(found.gradients.logprobs!, c.grad_logprobs)).toBeLessThan(1e-7);
    expect(maxDifference(found.gradients.values!, c.grad_values)).toBeLessThan(1e-7);
  });

  it('counts as clipped what lies outside the range, also where that does not stop its gradient', async () => {
    // Twice as likely as before: with a good advantage the gradient stops, with a bad one it goes on. The third is inside.
    const found = await throughTape(device, { logprobs: [Math.log(2), Math.log(2), 0.1] }, (on) =>
      ppo(
        {
          ...on,
          oldLogprobs: vector(device, [0, 0, 0]),
          advantages: vector(device, [1, -1, 1]),
          weights: vector(device, [0.25, 0.25, 0.5]),
        },
        { clipLow: 0.2, clipHigh: 0.2 },
      ),
    );
    expect(found.statistics.clip_fraction).toBeCloseTo(0.5, 6);
    expect(found.gradients.logprobs!.map((value) => value !== 0)).toEqual([false, true, true]);
  });

  it.each(golden.grpo)('is GRPO with group advantages and answer-wise weights (beta $beta)', async (c) => {
    const answers = c.rewards.length;
    const tokens = c.logprobs.map((row) => row.length);
    const advantages = device.scope(() =>
      groupAdvantages(vector(device, c.rewards), device.tensor(Int32Array.of(0, answers))),
    );
    const perAnswer = await advantages.readFloats();
    advantages.dispose();
    expect(maxDifference(perAnswer, c.advantages)).toBeLessThan(1e-6);
    const found = await throughTape(device, { logprobs: c.logprobs.flat() }, (on) =>
      ppo(
        {
          ...on,
          oldLogprobs: vector(device, c.old_logprobs.flat()),
          refLogprobs: vector(device, c.ref_logprobs.flat()),
          advantages: vector(
            device,
            tokens.flatMap((count, i) => Array<number>(count).fill(perAnswer[i] as number)),
          ),
          weights: vector(
            device,
            c.mask.flatMap((row) => row.map((kept) => kept / (sum(row) * answers))),
          ),
        },
        { clipLow: c.clip_range, clipHigh: c.clip_range, klCoef: c.beta, klEstimator: 'k3' },
      ),
    );
    expect(found.loss).toBeCloseTo(c.loss, 6);
    expect(maxDifference(found.gradients.logprobs!, c.grad_logprobs.flat())).toBeLessThan(1e-6);
  });

  it.each(['k1', 'k2', 'k3'] as const)('penalises by %s', async (klEstimator) => {
    const { logp, ref_logp } = vectors.kl_estimators;
    const found = await throughTape(device, { logprobs: logp }, (on) => {
      const zero = vector(
        device,
        logp.map(() => 0),
      );
      const weights = vector(
        device,
        logp.map(() => 1),
      );
      const refLogprobs = vector(device, ref_logp);
      return ppo(
        { ...on, oldLogprobs: vector(device, logp), advantages: zero, weights, refLogprobs },
        { klCoef: 0.5, klEstimator },
      );
    });
    expect(found.loss).toBeCloseTo(0.5 * sum(vectors.kl_estimators[klEstimator]), 6);
    const slopes = logp.map((lp, i) => {
      const d = lp - ref_logp[i]!;
      return 0.5 * { k1: 1, k2: d, k3: 1 - Math.exp(-d) }[klEstimator];
    });
    expect(maxDifference(found.gradients.logprobs!, slopes)).toBeLessThan(1e-6);
  });

  it('rewards entropy, scaled by the weight of the loss in the total', async () => {
    const found = await throughTape(
      device,
      { logprobs: [-1, -2], entropy: [0.5, 1.5] },
      (on) => {
        const weights = vector(device, [0.25, 0.75]);
        const same = vector(device, [-1, -2]);
        return ppo(
          { ...on, oldLogprobs: same, advantages: vector(device, [2, -1]), weights },
          { entropyCoef: 0.1 },
        );
      },
      { seed: -3 },
    );
    const entropy = 0.25 * 0.5 + 0.75 * 1.5;
    expect(found.loss).toBeCloseTo(-0.25 * 2 + 0.75 - 0.1 * entropy, 6);
    expect(found.statistics.entropy).toBeCloseTo(entropy, 6);
    expect(maxDifference(found.gradients.logprobs!, [1.5, -2.25])).toBeLessThan(1e-6);
    expect(maxDifference(found.gradients.entropy!, [0.075, 0.225])).toBeLessThan(1e-7);
  });

  it.each([
    [{ klCoef: 0.1 }, {}, 'ppo: klCoef needs refLogprobs'],
    [{ entropyCoef: 0.1 }, {}, 'ppo: entropyCoef needs entropy'],
    [{}, { values: true }, 'ppo: values needs returns'],
    [{ valueClip: 0.2 }, { values: true, returns: true }, 'ppo: valueClip needs oldValues'],
  ])('refuses %o without its input', (options, given, message) => {
    device.scope(() => {
      const row = vector(device, [0]);
      const inputs = { logprobs: row, oldLogprobs: row, advantages: row, weights: row };
      const more = Object.fromEntries(Object.keys(given).map((name) => [name, row]));
      expect(() => ppo({ ...inputs, ...more }, options)).toThrow(message);
    });
  });
});

it('ppo carries the entropy bonus through the head, and refuses an entropy that could not', async () => {
  const logits = [1.2, -0.4, 0.3, 0.1, 0.9, -1];
  const values = Float32Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1);
  const head = { name: 'head', value: device.tensor(values, [3, 3]) };
  const run = (entropyGradient: boolean) =>
    throughTape(
      device,
      { hidden: logits },
      ({ hidden }) => {
        const targets = device.tensor(Int32Array.of(0, 2));
        const { logprobs, entropy } = headLogprobs(hidden, head, targets, { entropyGradient });
        const zero = vector(device, [0, 0]);
        const inputs = { logprobs, oldLogprobs: logprobs, advantages: zero, weights: vector(device, [1, 1]) };
        return ppo({ ...inputs, entropy }, { entropyCoef: 0.5 });
      },
      { shapes: { hidden: [2, 3] } },
    );
  const entropyOf = (x: number[]) => {
    const p = x.map((logit) => Math.exp(logit) / sum(x.map(Math.exp)));
    return -sum(p.map((q) => q * Math.log(q)));
  };
  const bonus = (x: number[]) => -0.5 * (entropyOf(x.slice(0, 3)) + entropyOf(x.slice(3)));
  const found = await run(true);
  expect(found.loss).toBeCloseTo(bonus(logits), 5);
  expect(maxDifference(found.gradients.hidden!, differentiate(bonus, logits))).toBeLessThan(1e-5);
  await expect(run(false)).rejects.toThrow('ppo: the entropy carries no gradient');
  head.value.dispose();
});

describe('verdictConstraint', () => {
  const { logits, const_full_vocab_ce, const_two_token_ce, grad_full, grad_two } = vectors.stepamc;

  // An identity, so that the hidden states are the logits.
  const identity = Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0));
  const head = { name: 'head', value: device.tensor(identity, [4, 4]) };

  const constraint = (form: ConstraintForm, full: boolean) =>
    throughTape(
      device,
      { hidden: logits },
      ({ hidden }) => {
        const labels = device.tensor(Int32Array.of(1, 0));
        const weights = vector(device, [1, 1]);
        const word = (id: number) => {
          const tokens = Int32Array.of(id, id);
          return full
            ? headLogprobs(hidden, head, device.tensor(tokens)).logprobs
            : reshape(headSelect(hidden, head, device.tensor(tokens, [2, 1])), [2]);
        };
        return verdictConstraint({ positive: word(0), negative: word(1), labels, weights }, { form });
      },
      { shapes: { hidden: [2, 4] } },
    );

  it('ce_full is the cross-entropy over the vocabulary', async () => {
    const found = await constraint('ce_full', true);
    expect(found.loss).toBeCloseTo(sum(const_full_vocab_ce), 5);
    expect(
      maxDifference(
        found.gradients.hidden!,
        grad_full.map((g) => 2 * g),
      ),
    ).toBeLessThan(1e-6);
  });

  it('ce_two is the cross-entropy over the two words, with no gradient for other logits', async () => {
    const found = await constraint('ce_two', false);
    expect(found.loss).toBeCloseTo(sum(const_two_token_ce), 5);
    expect(
      maxDifference(
        found.gradients.hidden!,
        grad_two.map((g) => 2 * g),
      ),
    ).toBeLessThan(1e-6);
  });

  it('mass is ce_full − ce_two', async () => {
    const found = await constraint('mass', true);
    expect(found.loss).toBeCloseTo(sum(const_full_vocab_ce) - sum(const_two_token_ce), 5);
    const beyond = grad_full.map((g, i) => 2 * (g - grad_two[i]!));
    expect(maxDifference(found.gradients.hidden!, beyond)).toBeLessThan(1e-6);
  });

  it('class_balanced takes the mean of each class, and names its statistics', async () => {
    const inputs = { positive: [-0.1, -2, -0.7], negative: [-2, -0.2, -0.9] };
    const found = await throughTape(device, inputs, (on) =>
      verdictConstraint({ ...on, labels: device.tensor(Int32Array.of(1, 0, 0)) }, { form: 'class_balanced' }),
    );
    const miss = (lead: number) => Math.log1p(Math.exp(-lead));
    const [first, second, third] = [miss(1.9), miss(1.8), miss(-0.2)] as const;
    expect(found.loss).toBeCloseTo(first + (second + third) / 2, 6);
    expect(found.statistics).toMatchObject({ acc_pos: 1, acc_neg: 0.5, positives: 1, negatives: 2 });
    expect(found.statistics.positive_loss).toBeCloseTo(first, 6);
    expect(found.statistics.negative_loss).toBeCloseTo((second + third) / 2, 6);
    expect(
      maxDifference(
        found.gradients.positive!,
        found.gradients.negative!.map((g) => -g),
      ),
    ).toBe(0);
  });
});

describe('advantages', () => {
  it.each(golden.gae)('gae gives the golden advantages of $rewards.length tokens', async (c) => {
    const cu = Int32Array.of(0, c.rewards.length);
    const found = device.scope(() => {
      const { advantages, returns } = gae(
        vector(device, c.rewards),
        vector(device, c.values),
        device.tensor(cu),
        {
          gamma: c.gamma,
          lambda: c.lam,
        },
      );
      return { advantages, returns, whitened: whiten(advantages) };
    });
    expect(maxDifference(await found.advantages.readFloats(), c.advantages)).toBeLessThan(1e-6);
    expect(maxDifference(await found.returns.readFloats(), c.returns)).toBeLessThan(1e-6);
    if (c.whitened) {
      expect(maxDifference(await found.whitened.readFloats(), c.whitened)).toBeLessThan(1e-5);
    }
    for (const tensor of Object.values(found)) tensor.dispose();
  });

  it('whiten divides by n − 1 or n, keeps the mean on request, and gives 0 for masked rows', async () => {
    const { advantages, whitened_bessel, whitened_population } = vectors.ppo;
    const of = async (...options: [Parameters<typeof whiten>[1]?]) => {
      const y = device.scope(() => whiten(vector(device, advantages), ...options));
      const values = await y.readFloats();
      y.dispose();
      return values;
    };
    expect(maxDifference(await of(), whitened_bessel)).toBeLessThan(1e-5);
    expect(maxDifference(await of({ bessel: false }), whitened_population)).toBeLessThan(1e-5);
    const mean = sum(advantages) / advantages.length;
    const shifted = whitened_bessel.map((value) => value + mean);
    expect(maxDifference(await of({ shiftMean: false }), shifted)).toBeLessThan(1e-5);
    const mask = vector(device, [0, ...advantages.slice(1).map(() => 1)]);
    expect((await of({ mask }))[0]).toBe(0);
    mask.dispose();
  });

  it('groupAdvantages gives the golden baselines', async () => {
    const { rewards, grpo, dr_grpo, rloo } = vectors.group;
    for (const [baseline, expected] of [
      ['grpo', grpo],
      ['mean', dr_grpo],
      ['leave_one_out', rloo],
    ] as const) {
      const offsets = Int32Array.of(0, rewards.length);
      const y = device.scope(() =>
        groupAdvantages(vector(device, rewards), device.tensor(offsets), { baseline, eps: 1e-4 }),
      );
      expect(maxDifference(await y.readFloats(), expected)).toBeLessThan(1e-6);
      y.dispose();
    }
  });
});
