import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { isas, openTest } from './devices.js';
import { maxDifference } from './numbers.js';
import {
  between,
  clamp,
  differentiate,
  evaluate,
  mean,
  readGolden,
  rounded,
  sum,
} from './objective-cases.js';

interface PpoCase {
  logprobs: number[];
  old_logprobs: number[];
  advantages: number[];
  values: number[];
  old_values: number[];
  returns: number[];
  mask: number[];
  clip_range: number;
  vf_coef: number;
  policy_loss: number;
  value_loss: number;
  total: number;
  grad_logprobs: number[];
  grad_values: number[];
  clip_fraction: number;
}

interface GrpoCase {
  advantages: number[];
  logprobs: number[][];
  old_logprobs: number[][];
  ref_logprobs: number[][];
  mask: number[][];
  beta: number;
  clip_range: number;
  loss: number;
  grad_logprobs: number[][];
}

const golden = readGolden('objectives') as { ppo: PpoCase[]; grpo: GrpoCase[] };
const vectors = readGolden('vectors') as {
  ppo: Record<
    'old_logp' | 'new_logp' | 'advantages' | 'values' | 'new_values' | 'returns' | 'ratio',
    number[]
  > &
    Record<'policy_loss' | 'value_loss' | 'grad_new_logp' | 'grad_new_values', number[]> &
    Record<'clip' | 'value_clip' | 'vf_coef', number>;
  kl_estimators: Record<'logp' | 'ref_logp' | 'k1' | 'k2' | 'k3', number[]>;
};

const STATS = [
  'policy',
  'value',
  'entropy',
  'k1',
  'k3',
  'oldK3',
  'clipped',
  'valuesClipped',
  'ratio',
  'largestRatio',
  'weight',
  'nonFinite',
] as const;

interface Settings {
  clip_low: number;
  clip_high: number;
  kl_coef: number;
  kl: 'k1' | 'k2' | 'k3';
  entropy_coef: number;
  vf_coef: number;
  value_clip: number;
  surrogate: 'clip' | 'cispo' | 'sapo';
  tau_pos: number;
  tau_neg: number;
}

const PLAIN: Settings = {
  clip_low: 0.2,
  clip_high: 0.2,
  kl_coef: 0,
  kl: 'k3',
  entropy_coef: 0,
  vf_coef: 0,
  value_clip: 0,
  surrogate: 'clip',
  tau_pos: 1,
  tau_neg: 1.05,
};

async function ppo(
  device: Device,
  inputs: Readonly<Record<string, readonly number[]>>,
  settings: Partial<Settings> = {},
) {
  const wanted = { dentropy: 'entropy' in inputs, dvalues: 'values' in inputs };
  const found = await evaluate(device, 'ppo', inputs, { ...PLAIN, ...settings, ...wanted });
  const stats = Object.fromEntries(STATS.map((name, i) => [name, found.stats![i]!]));
  return {
    loss: found.loss![0]!,
    dlogprobs: found.dlogprobs!,
    dentropy: found.dentropy ?? [],
    dvalues: found.dvalues ?? [],
    stats: stats as Record<(typeof STATS)[number], number>,
  };
}

interface Row {
  logprob: number;
  old: number;
  ref: number;
  advantage: number;
  weight: number;
  entropy: number;
  value: number;
  oldValue: number;
  target: number;
}

/** The objective of `ppo` in core/ops.cc, term by term, in float64; the weight of cispo is that of `weighted`, since it is constant. */
function reference(rows: readonly Row[], s: Settings, weighted: readonly Row[] = rows): number {
  return sum(
    rows.map((row, i) => {
      const ratio = Math.exp(row.logprob - row.old);
      const inside = (r: number) => clamp(r, 1 - s.clip_low, 1 + s.clip_high);
      const constant = weighted[i] as Row;
      const tau = row.advantage > 0 ? s.tau_pos : s.tau_neg;
      const policy = {
        clip: Math.max(-row.advantage * ratio, -row.advantage * inside(ratio)),
        cispo: -row.advantage * inside(Math.exp(constant.logprob - constant.old)) * row.logprob,
        sapo: (-row.advantage * 4) / tau / (1 + Math.exp(-tau * (ratio - 1))),
      }[s.surrogate];
      const d = row.logprob - row.ref;
      const kl = { k1: d, k2: d ** 2 / 2, k3: Math.exp(-d) - 1 + d }[s.kl];
      const near = clamp(row.value, row.oldValue - s.value_clip, row.oldValue + s.value_clip);
      const errors = [row.value, ...(s.value_clip > 0 ? [near] : [])].map((v) => (v - row.target) ** 2);
      const value = 0.5 * Math.max(...errors);
      return row.weight * (policy + s.kl_coef * kl - s.entropy_coef * row.entropy + s.vf_coef * value);
    }),
  );
}

const row: fc.Arbitrary<Row> = fc.record({
  logprob: between(-3, 0),
  old: between(-3, 0),
  ref: between(-3, 0),
  advantage: between(-2, 2),
  weight: fc.oneof(fc.constant(0), between(0.1, 1)),
  entropy: between(0, 3),
  value: between(-2, 2),
  oldValue: between(-2, 2),
  target: between(-2, 2),
});
const settings: fc.Arbitrary<Settings> = fc.record({
  clip_low: fc.constantFrom(0.1, 0.2, 0.5),
  clip_high: fc.constantFrom(0.1, 0.28, 3),
  kl_coef: fc.constantFrom(0, 0.04, 1),
  kl: fc.constantFrom('k1', 'k2', 'k3'),
  entropy_coef: fc.constantFrom(0, 0.01),
  vf_coef: fc.constantFrom(0.1, 1),
  value_clip: fc.constantFrom(0, 0.2),
  surrogate: fc.constantFrom('clip', 'cispo', 'sapo'),
  tau_pos: fc.constantFrom(1, 0.5),
  tau_neg: fc.constantFrom(1.05, 3),
});

const columns = (rows: readonly Row[]) => ({
  logprobs: rows.map((r) => r.logprob),
  old_logprobs: rows.map((r) => r.old),
  ref_logprobs: rows.map((r) => r.ref),
  advantages: rows.map((r) => r.advantage),
  weights: rows.map((r) => r.weight),
  entropy: rows.map((r) => r.entropy),
  values: rows.map((r) => r.value),
  old_values: rows.map((r) => r.oldValue),
  returns: rows.map((r) => r.target),
});

describe.each(isas)('policy objectives on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  it.each(golden.ppo)('ppo gives the golden losses and gradients ($logprobs.length tokens)', async (c) => {
    const weights = c.mask.map((kept) => kept / sum(c.mask));
    const { logprobs, old_logprobs, advantages, values, old_values, returns } = c;
    const found = await ppo(
      device,
      { logprobs, old_logprobs, advantages, weights, values, old_values, returns },
      { clip_low: c.clip_range, clip_high: c.clip_range, vf_coef: c.vf_coef, value_clip: c.clip_range },
    );
    expect(found.loss).toBeCloseTo(c.total, 6);
    expect(found.stats.policy).toBeCloseTo(c.policy_loss, 6);
    expect(found.stats.value).toBeCloseTo(c.value_loss, 6);
    expect(found.stats.clipped).toBeCloseTo(c.clip_fraction, 6);
    expect(maxDifference(found.dlogprobs, c.grad_logprobs)).toBeLessThan(1e-7);
    expect(maxDifference(found.dvalues, c.grad_values)).toBeLessThan(1e-7);
  });

  it('ppo gives the worked example, without and with value clipping', async () => {
    const c = vectors.ppo;
    const found = await ppo(
      device,
      {
        logprobs: c.new_logp,
        old_logprobs: c.old_logp,
        advantages: c.advantages,
        weights: [0.25, 0.25, 0.25, 0.25],
        values: c.new_values,
        old_values: c.values,
        returns: c.returns,
      },
      { clip_low: c.clip, clip_high: c.clip, vf_coef: c.vf_coef, value_clip: c.value_clip },
    );
    expect(found.loss).toBeCloseTo(c.policy_loss[0]! + c.vf_coef * c.value_loss[0]!, 6);
    expect(maxDifference(found.dlogprobs, c.grad_new_logp)).toBeLessThan(1e-7);
    expect(maxDifference(found.dvalues, c.grad_new_values)).toBeLessThan(1e-7);
    expect(found.stats.ratio).toBeCloseTo(mean(c.ratio), 6);
    expect(found.stats.largestRatio).toBeCloseTo(Math.max(...c.ratio), 6);
  });

  it.each(golden.grpo)('ppo with k3 and per-answer weights is GRPO (beta $beta)', async (c) => {
    const answers = c.logprobs.length;
    const found = await ppo(
      device,
      {
        logprobs: c.logprobs.flat(),
        old_logprobs: c.old_logprobs.flat(),
        ref_logprobs: c.ref_logprobs.flat(),
        advantages: c.logprobs.flatMap((tokens, i) => tokens.map(() => c.advantages[i]!)),
        weights: c.mask.flatMap((tokens) => tokens.map((kept) => kept / (sum(tokens) * answers))),
      },
      { clip_low: c.clip_range, clip_high: c.clip_range, kl_coef: c.beta, kl: 'k3' },
    );
    expect(found.loss).toBeCloseTo(c.loss, 6);
    expect(maxDifference(found.dlogprobs, c.grad_logprobs.flat())).toBeLessThan(1e-7);
  });

  it.each(['k1', 'k2', 'k3'] as const)('ppo penalises by the golden %s estimate', async (kl) => {
    const { logp, ref_logp, k1, k3 } = vectors.kl_estimators;
    const inputs = { logprobs: logp, old_logprobs: logp, ref_logprobs: ref_logp, advantages: [0, 0] };
    const found = await ppo(device, { ...inputs, weights: [1, 1] }, { kl_coef: 0.5, kl });
    expect(found.loss).toBeCloseTo(0.5 * sum(vectors.kl_estimators[kl]), 6);
    expect(found.stats.k1).toBeCloseTo(mean(k1), 6);
    expect(found.stats.k3).toBeCloseTo(mean(k3), 6);
  });

  it('ppo follows float64 and finite differences under every setting', () =>
    fc.assert(
      fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 24 }), settings, async (rows, s) => {
        // Finite differences are meaningless next to a kink.
        fc.pre(
          rows.every((r) => {
            const ratio = Math.exp(r.logprob - r.old);
            const kinks = [
              ratio - 1 + s.clip_low,
              ratio - 1 - s.clip_high,
              Math.abs(r.value - r.oldValue) - 0.2,
            ];
            return kinks.every((distance) => Math.abs(distance) > 1e-3);
          }),
        );
        const found = await ppo(device, columns(rows), s);
        const scale = 1 + sum(rows.map((r) => r.weight)) * 60;
        expect(Math.abs(found.loss - reference(rows, s))).toBeLessThan(1e-7 * scale);
        const along = (key: keyof Row) =>
          differentiate(
            (x) =>
              reference(
                rows.map((r, i) => ({ ...r, [key]: x[i]! })),
                s,
                rows,
              ),
            rows.map((r) => r[key]),
          );
        expect(maxDifference(found.dlogprobs, along('logprob'))).toBeLessThan(2e-5);
        expect(maxDifference(found.dentropy, along('entropy'))).toBeLessThan(1e-6);
        expect(maxDifference(found.dvalues, along('value'))).toBeLessThan(1e-6);
        rows.forEach((r, i) => {
          if (r.weight === 0)
            expect([found.dlogprobs[i], found.dentropy[i], found.dvalues[i]]).toEqual([0, 0, 0]);
        });
      }),
      { numRuns: 60 },
    ));

  it('ppo starts at ratio exactly 1, with the policy gradient and no clipping', () =>
    fc.assert(
      fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 24 }), async (rows) => {
        fc.pre(rows.some((r) => r.weight > 0));
        const { logprobs, advantages, weights } = columns(rows);
        const found = await ppo(device, { logprobs, old_logprobs: logprobs, advantages, weights });
        expect(found.stats.largestRatio).toBe(1);
        expect(found.stats.clipped).toBe(0);
        expect(found.stats.oldK3).toBe(0);
        const expected = rounded(advantages.map((a, i) => 0 - weights[i]! * a));
        expect(maxDifference(found.dlogprobs, expected)).toBe(0);
      }),
      { numRuns: 40 },
    ));

  it('ppo gives a gradient of exactly 0 past the clip on the good side, and a full one on the bad side', async () => {
    const change = Math.log(2);
    const sides = [
      { logprobs: [change], advantages: [1], gradient: 0 },
      { logprobs: [-change], advantages: [-1], gradient: 0 },
      { logprobs: [change], advantages: [-1], gradient: 2 },
      { logprobs: [-change], advantages: [1], gradient: -0.5 },
    ];
    for (const { logprobs, advantages, gradient } of sides) {
      const found = await ppo(device, { logprobs, old_logprobs: [0], advantages, weights: [1] });
      expect(found.dlogprobs[0]).toBeCloseTo(gradient, 6);
      if (gradient === 0) expect(found.dlogprobs[0]).toBe(0);
    }
  });

  it('ppo clips asymmetrically', async () => {
    const inputs = { logprobs: [Math.log(1.25)], old_logprobs: [0], advantages: [1], weights: [1] };
    expect((await ppo(device, inputs, { clip_high: 0.2 })).loss).toBeCloseTo(-1.2, 6);
    expect((await ppo(device, inputs, { clip_high: 0.28 })).loss).toBeCloseTo(-1.25, 6);
  });

  it('GSPO is ppo on the mean log-probs of sequences, spread back over their tokens', async () => {
    const lengths = [3, 5];
    const spans = Int32Array.of(0, 3, 3, 8);
    const logprobs = rounded([-1, -0.5, -0.2, -0.9, -1.5, -0.3, -0.7, -1.1]);
    const old = rounded([-1.05, -0.45, -0.25, -0.8, -1.6, -0.35, -0.75, -1.0]);
    const advantages = [0.7, -1.2];
    const objective = (x: number[]) =>
      mean(
        lengths.map((length, s) => {
          const begin = spans[2 * s]!;
          const ratio = Math.exp(
            mean(x.slice(begin, begin + length)) - mean(old.slice(begin, begin + length)),
          );
          return Math.max(-advantages[s]! * ratio, -advantages[s]! * clamp(ratio, 0.8, 1.2));
        }),
      );
    const means = async (x: number[]) =>
      (await evaluate(device, 'span_sum', { x, spans: [spans, [2, 2]] }, { mean: true })).y!;
    const found = await ppo(device, {
      logprobs: await means(logprobs),
      old_logprobs: await means(old),
      advantages,
      weights: [0.5, 0.5],
    });
    expect(found.loss).toBeCloseTo(objective(logprobs), 6);
    const spread = await evaluate(
      device,
      'span_spread',
      { dy: found.dlogprobs, spans: [spans, [2, 2]] },
      { T: 8, mean: true },
    );
    expect(maxDifference(spread.dx!, differentiate(objective, logprobs))).toBeLessThan(1e-6);
  });

  it('ppo clamps an extreme ratio, and stops its gradient', async () => {
    const found = await ppo(
      device,
      {
        logprobs: [-1, -200],
        old_logprobs: [-200, -1],
        ref_logprobs: [-200, -1],
        advantages: [-1, 1],
        weights: [1, 1],
      },
      { kl_coef: 1, kl: 'k3' },
    );
    expect(found.stats.largestRatio / Math.exp(20)).toBeCloseTo(1, 6);
    expect(Number.isFinite(found.loss)).toBe(true);
    expect(found.dlogprobs).toEqual([0, 0]);
  });

  it('ppo keeps a gradient on every token by cispo, and a soft one by sapo, where the clip would stop it', async () => {
    const inputs = { logprobs: [Math.log(2) - 1], old_logprobs: [-1], advantages: [1], weights: [1] };
    const cispo = await ppo(device, inputs, { surrogate: 'cispo', clip_low: 1, clip_high: 0.5 });
    expect(cispo.dlogprobs[0]).toBeCloseTo(-1.5, 6);
    expect(cispo.loss).toBeCloseTo(-1.5 * (Math.log(2) - 1), 6);
    const sapo = await ppo(device, inputs, { surrogate: 'sapo' });
    const gate = 1 / (1 + Math.exp(-1));
    expect(sapo.loss).toBeCloseTo(-4 * gate, 6);
    expect(sapo.dlogprobs[0]).toBeCloseTo(-8 * gate * (1 - gate), 6);
    // At ratio 1 both have the policy gradient.
    for (const surrogate of ['cispo', 'sapo'] as const) {
      const even = await ppo(device, { ...inputs, logprobs: [-1] }, { surrogate });
      expect(even.dlogprobs[0]).toBeCloseTo(-1, 6);
    }
    // What is refused ends its queue.
    const other = openTest(isa);
    await expect(ppo(other, inputs, { surrogate: 'sapo', tau_pos: 0 })).rejects.toThrow(/tau_pos/);
    other.dispose();
  });

  it.each([
    'logprobs',
    'old_logprobs',
    'advantages',
    'weights',
    'ref_logprobs',
    'entropy',
    'values',
    'returns',
  ])('ppo counts a non-finite row of %s and passes it on as NaN', async (name) => {
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const inputs = {
        logprobs: [-1, -1],
        old_logprobs: [-1.1, -1.1],
        ref_logprobs: [-1, -1],
        advantages: [1, 1],
        weights: [0.5, 0.5],
        entropy: [1, 1],
        values: [0, 0],
        returns: [1, 1],
      };
      inputs[name as keyof typeof inputs][1] = bad;
      const found = await ppo(device, inputs, { vf_coef: 0.1 });
      expect(found.stats.nonFinite).toBe(1);
      expect(found.loss).toBeNaN();
      expect(found.dlogprobs[0]).toBeCloseTo(-0.5 * Math.exp(0.1), 6);
      expect(found.dlogprobs[1]).toBeNaN();
      expect(found.dvalues[1]).toBeNaN();
      expect(found.stats.ratio).toBeNaN();
    }
  });

  it('ppo does not read rows of weight 0, and gives 0 for 0 rows', async () => {
    const none = await ppo(device, {
      logprobs: [Number.NaN],
      old_logprobs: [Number.NaN],
      advantages: [Number.NaN],
      weights: [0],
    });
    expect(none.loss).toBe(0);
    expect(none.dlogprobs).toEqual([0]);
    expect(Object.values(none.stats)).toEqual(STATS.map(() => 0));
    const empty = await ppo(device, { logprobs: [], old_logprobs: [], advantages: [], weights: [] });
    expect(empty.loss).toBe(0);
  });

  it('ppo gives the same bits with one thread and with many', async () => {
    const count = 9_001;
    const wave = (k: number) => Array.from({ length: count }, (_, i) => Math.fround(Math.sin(i * k)));
    const inputs = {
      logprobs: wave(1.1),
      old_logprobs: wave(1.2),
      advantages: wave(2.3),
      weights: wave(0.7).map((x) => (x < -0.5 ? 0 : x * x)),
    };
    const [many, one] = await Promise.all([device, single].map((on) => ppo(on, inputs)));
    expect(many).toEqual(one);
  });

  it.each([
    {
      inputs: {},
      settings: { kl_coef: 0.1 },
      message: 'ppo: kl_coef needs ref_logprobs',
    },
    { inputs: {}, settings: { entropy_coef: 0.1 }, message: 'ppo: entropy_coef needs entropy' },
    { inputs: { values: [0] }, settings: {}, message: 'ppo: values need returns' },
    {
      inputs: { values: [0], returns: [0] },
      settings: { value_clip: 0.2 },
      message: 'ppo: value_clip needs old_values',
    },
  ])('refuses: $message', async ({ inputs, settings: given, message }) => {
    const poisoned = openTest(isa);
    const plain = { logprobs: [0], old_logprobs: [0], advantages: [0], weights: [1] };
    await expect(ppo(poisoned, { ...plain, ...inputs }, given)).rejects.toThrow(message);
    poisoned.dispose();
  });
});
