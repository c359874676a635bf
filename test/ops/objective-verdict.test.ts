import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference } from './numbers.js';
import {
  between,
  differentiate,
  evaluate,
  logSigmoid,
  mean,
  readGolden,
  rounded,
  sigmoid,
  sum,
} from './objective-cases.js';

const vectors = readGolden('vectors') as {
  stepamc: {
    logits: number[];
    const_full_vocab_ce: number[];
    const_two_token_ce: number[];
    grad_full: number[];
    grad_two: number[];
    combine: Record<'alpha' | 'total', number[]> & Record<'L_policy' | 'L_value' | 'c_v' | 'L_const', number>;
  };
};

describe.each(isas)('verdict_constraint on %s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  const FORMS = ['class_balanced_full', 'class_balanced', 'ce_two', 'ce_full', 'mass', 'margin'] as const;
  const constraint = (
    positive: number[],
    negative: number[],
    labels: number[],
    form: (typeof FORMS)[number],
    weights?: number[],
  ) =>
    evaluate(
      device,
      'verdict_constraint',
      { positive, negative, labels: Int32Array.from(labels), ...(weights ? { weights } : {}) },
      { form, margin: 1 },
    );

  const normalise = (logits: number[]) => {
    const lse = Math.log(sum(logits.map(Math.exp)));
    return logits.map((z) => z - lse);
  };
  const two = [vectors.stepamc.logits.slice(0, 4), vectors.stepamc.logits.slice(4)];
  const labels = [1, 0];

  it('gives the golden two-word and full-vocabulary losses and gradients', async () => {
    const c = vectors.stepamc;
    const [first, second] = two.map(normalise) as [number[], number[]];
    const positive = [first[0]!, second[0]!];
    const negative = [first[1]!, second[1]!];
    const twoWords = await constraint(positive, negative, labels, 'ce_two');
    expect(twoWords.loss![0]).toBeCloseTo(mean(c.const_two_token_ce), 6);
    expect(twoWords.dpositive).toEqual(
      rounded([c.grad_two[0]!, c.grad_two[4]!]).map((g) => expect.closeTo(g, 7)),
    );
    expect(twoWords.dnegative).toEqual(
      rounded([c.grad_two[1]!, c.grad_two[5]!]).map((g) => expect.closeTo(g, 7)),
    );
    expect(twoWords.stats![0]).toBeCloseTo(c.const_two_token_ce[0]!, 6);
    expect(twoWords.stats![1]).toBeCloseTo(c.const_two_token_ce[1]!, 6);

    // One row of each class: the mean of each class apart is the row itself.
    const balanced = await constraint(positive, negative, labels, 'class_balanced_full');
    expect(balanced.loss![0]).toBeCloseTo(sum(c.const_full_vocab_ce), 6);
    const full = await constraint(positive, negative, labels, 'ce_full');
    expect(full.loss![0]).toBeCloseTo(mean(c.const_full_vocab_ce), 6);
    // Through the log-softmax, the gradient of the log-probs is the golden one of the logits.
    const chain = (probs: number[], right: number, g: number) =>
      probs.map((p, v) => g * ((v === right ? 1 : 0) - p));
    const logits = [
      ...chain(first.map(Math.exp), 0, full.dpositive![0]!),
      ...chain(second.map(Math.exp), 1, full.dnegative![1]!),
    ];
    expect(maxDifference(logits, c.grad_full)).toBeLessThan(1e-7);
  });

  it('ce_full is ce_two plus mass, term by term', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(between(-6, 0), between(-6, 0), fc.constantFrom(0, 1)), {
          minLength: 1,
          maxLength: 9,
        }),
        async (rows) => {
          const [p, n, y] = [0, 1, 2].map((k) => rows.map((r) => r[k]!)) as [number[], number[], number[]];
          const full = await constraint(p, n, y, 'ce_full');
          const parts = [await constraint(p, n, y, 'ce_two'), await constraint(p, n, y, 'mass')];
          expect(full.loss![0]).toBeCloseTo(parts[0]!.loss![0]! + parts[1]!.loss![0]!, 5);
          for (const name of ['dpositive', 'dnegative']) {
            const both = rows.map((_, i) => parts[0]![name]![i]! + parts[1]![name]![i]!);
            expect(maxDifference(full[name]!, both)).toBeLessThan(1e-7);
          }
        },
      ),
      { numRuns: 40 },
    ));

  it('class_balanced_full pulls the two words up together, class_balanced only apart', async () => {
    // Two words that share a tenth of the probability: the rest is on other words.
    const [right, wrong] = rounded([Math.log(0.05), Math.log(0.05)]) as [number, number];
    const full = await constraint([right], [wrong], [1], 'class_balanced_full');
    expect([full.dpositive![0], full.dnegative![0]]).toEqual([-1, 0]);
    const two = await constraint([right], [wrong], [1], 'class_balanced');
    // The gradient of the words' sum is 0: mass on other words costs nothing.
    expect(two.dpositive![0]! + two.dnegative![0]!).toBeCloseTo(0, 12);
    const sameLead = await constraint([right - 5], [wrong - 5], [1], 'class_balanced');
    expect(sameLead.loss![0]).toBeCloseTo(two.loss![0]!, 6);
  });

  it('class_balanced sums the means of the classes; a missing class adds nothing', async () => {
    const positive = rounded([0.5, -1, 2]);
    const negative = rounded([0.1, 0.4, 1]);
    const found = await constraint(positive, negative, [1, 1, 0], 'class_balanced');
    const losses = [0.4, -1.4, -1].map((lead) => -logSigmoid(lead));
    expect(found.loss![0]).toBeCloseTo((losses[0]! + losses[1]!) / 2 + losses[2]!, 6);
    expect(found.stats!.map((x) => Math.round(x * 1e6) / 1e6)).toEqual([
      Math.round(((losses[0]! + losses[1]!) / 2) * 1e6) / 1e6,
      Math.round(losses[2]! * 1e6) / 1e6,
      0.5,
      0,
      2,
      1,
      Math.round(mean([sigmoid(0.4), sigmoid(-1.4), sigmoid(-1)]) * 1e6) / 1e6,
      0,
    ]);
    const alone = await constraint(positive, negative, [1, 1, 1], 'class_balanced');
    expect(alone.loss![0]).toBeCloseTo(mean([0.4, -1.4, 1].map((lead) => -logSigmoid(lead))), 6);
    expect(alone.stats![1]).toBe(0);
  });

  it.each(FORMS)('%s follows float64 and finite differences', (form) =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.tuple(
            between(-4, 0),
            between(-4, 0),
            fc.constantFrom(0, 1),
            fc.oneof(fc.constant(0), between(0.1, 1)),
          ),
          { minLength: 1, maxLength: 9 },
        ),
        fc.boolean(),
        async (rows, weighted) => {
          const [p, n, y, w] = [0, 1, 2, 3].map((k) => rows.map((r) => r[k]!)) as number[][];
          fc.pre(form !== 'margin' || rows.every((r) => Math.abs(Math.abs(r[0] - r[1]) - 1) > 1e-3));
          const weights = weighted
            ? w!
            : y!.map(
                (label) =>
                  1 / (form.startsWith('class_balanced') ? y!.filter((l) => l === label).length : y!.length),
              );
          const loss = (x: number[]) =>
            sum(
              rows.map((_, i) => {
                const [a, b] = [x[i]!, x[i + rows.length]!];
                const [right, wrong] = y![i] === 1 ? [a, b] : [b, a];
                const terms = {
                  class_balanced_full: -right,
                  class_balanced: -logSigmoid(right - wrong),
                  ce_two: -logSigmoid(right - wrong),
                  ce_full: -right,
                  mass: -Math.log(Math.exp(a) + Math.exp(b)),
                  margin: Math.max(0, 1 - (right - wrong)),
                };
                return weights[i]! * terms[form];
              }),
            );
          const found = await constraint(p!, n!, y!, form, weighted ? w : undefined);
          expect(Math.abs(found.loss![0]! - loss([...p!, ...n!]))).toBeLessThan(1e-5);
          const gradient = [...found.dpositive!, ...found.dnegative!];
          expect(maxDifference(gradient, differentiate(loss, [...p!, ...n!]))).toBeLessThan(1e-6);
        },
      ),
      { numRuns: 30 },
    ),
  );

  it('combines with the RL loss by weights, as in the worked example', async () => {
    const { alpha, L_policy, L_value, c_v, L_const, total } = vectors.stepamc.combine;
    // Rows that give the losses of the worked example: policy = -A, value = V²/2, constraint = -log p.
    const rl = await evaluate(
      device,
      'ppo',
      {
        logprobs: [0],
        old_logprobs: [0],
        advantages: [-L_policy],
        weights: [alpha[0]!],
        values: [Math.sqrt(2 * L_value)],
        returns: [0],
      },
      { clip_low: 0.2, clip_high: 0.2, vf_coef: c_v },
    );
    const verdict = await constraint([-L_const], [0], [1], 'ce_full', [1 - alpha[0]!]);
    expect(rl.loss![0]! + verdict.loss![0]!).toBeCloseTo(total[0]!, 6);
  });

  it.each([
    { labels: [1, 2], message: 'verdict_constraint: labels[1] is 2, expected 0 or 1', form: 'ce_two' },
    { labels: [1, 1], message: 'verdict_constraint: form must be class_balanced, ce_two', form: 'ce' },
  ])('refuses: $message', async ({ labels: given, message, form }) => {
    const poisoned = openTest(isa);
    const inputs = { positive: [0, 0], negative: [0, 0], labels: Int32Array.from(given) };
    await expect(evaluate(poisoned, 'verdict_constraint', inputs, { form, margin: 0 })).rejects.toThrow(
      message,
    );
    poisoned.dispose();
  });

  it('skips unlabelled rows by weight, counts non-finite ones, and accepts 0 rows', async () => {
    const skipped = await constraint([0, 1], [0, 2], [-1, 1], 'ce_two', [0, 1]);
    expect(skipped.loss![0]).toBeCloseTo(-logSigmoid(-1), 6);
    expect(skipped.stats!.slice(4, 6)).toEqual([1, 0]);
    const broken = await constraint([0, Number.POSITIVE_INFINITY], [0, 2], [1, 1], 'ce_two');
    expect(broken.loss![0]).toBeNaN();
    expect(broken.dpositive![1]).toBeNaN();
    expect(broken.stats![7]).toBe(1);
    expect((await constraint([], [], [], 'class_balanced')).loss).toEqual([0]);
  });
});
