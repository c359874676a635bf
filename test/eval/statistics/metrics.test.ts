import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  baselineMetrics,
  confusionMetrics,
  countConfusion,
  rocAuc,
} from '../../../src/eval/statistics/metrics.js';
import { passAtK, processBenchScore } from '../../../src/eval/statistics/solutions.js';

const golden = JSON.parse(readFileSync(new URL('../../golden/vectors.json', import.meta.url), 'utf8'));

describe('verdict metrics', () => {
  it.each(Object.keys(golden.metrics))('match the reference: %s', (name) => {
    const { tp, fn, fp, tn, ...expected } = golden.metrics[name];
    const found = confusionMetrics({ tp, fn, fp, tn });
    expect(found.n).toBe(tp + fn + fp + tn);
    const { acc, balanced_acc, ...same } = expected;
    const renamed = { ...same, accuracy: acc, balanced_accuracy: balanced_acc };
    expect(Object.keys(renamed)).toHaveLength(10);
    for (const [key, value] of Object.entries(renamed)) {
      expect(found[key as keyof typeof found], key).toBeCloseTo(value as number, 12);
    }
  });

  it('are 0 if the denominator is 0', () => {
    const none = confusionMetrics({ tp: 0, fn: 0, fp: 0, tn: 0 });
    expect(new Set(Object.values(none))).toEqual(new Set([0]));
    const oneClass = confusionMetrics({ tp: 0, fn: 7, fp: 0, tn: 0 });
    expect(oneClass).toMatchObject({ n: 7, acc_pos: 0, acc_neg: 0, f1_pos: 0, f1_neg: 0, f1_harmonic: 0 });
  });

  it('follow from precision and recall for any counts', () => {
    const count = fc.integer({ min: 0, max: 1000 });
    fc.assert(
      fc.property(count, count, count, count, (tp, fn, fp, tn) => {
        const found = confusionMetrics({ tp, fn, fp, tn });
        const f1 = (hit: number, missed: number, wrong: number) => {
          if (hit === 0) return 0;
          const [precision, recall] = [hit / (hit + wrong), hit / (hit + missed)];
          return (2 * precision * recall) / (precision + recall);
        };
        expect(found.f1_pos).toBeCloseTo(f1(tp, fn, fp), 12);
        expect(found.f1_neg).toBeCloseTo(f1(tn, fp, fn), 12);
        for (const value of Object.values(found)) expect(Number.isFinite(value)).toBe(true);
      }),
    );
  });
});

describe('counting verdicts', () => {
  const steps = [
    { label: 1, verdict: 1 },
    { label: 1, verdict: 0 },
    { label: 1, verdict: undefined },
    { label: 0, verdict: 0 },
    { label: 0, verdict: 0 },
    { label: 0, verdict: 1 },
    { label: 0, verdict: undefined },
    { label: 0, verdict: undefined },
  ] as const;

  it('counts an unreadable verdict against its class', () => {
    expect(countConfusion(steps, { invalidAsWrong: true })).toEqual({
      confusion: { tp: 1, fn: 2, fp: 3, tn: 2 },
      invalid: 3,
    });
  });

  it('leaves out unreadable verdicts on request, but counts them', () => {
    expect(countConfusion(steps, { invalidAsWrong: false })).toEqual({
      confusion: { tp: 1, fn: 1, fp: 1, tn: 2 },
      invalid: 3,
    });
  });
});

describe('baselines', () => {
  const baselines = baselineMetrics({ positives: 80, negatives: 20, positivePrior: 0.75 });

  it('give the scores of constant answers', () => {
    expect(baselines.always_positive).toMatchObject({
      n: 100,
      acc_pos: 1,
      acc_neg: 0,
      accuracy: 0.8,
      f1_neg: 0,
    });
    expect(baselines.always_positive.f1_macro).toBeCloseTo(160 / 180 / 2, 12);
    expect(baselines.always_negative).toMatchObject({
      n: 100,
      acc_pos: 0,
      acc_neg: 1,
      accuracy: 0.2,
      f1_pos: 0,
    });
    expect(baselines.majority).toEqual(baselines.always_positive);
  });

  it('use the majority of the training data, not of the judged steps', () => {
    const found = baselineMetrics({ positives: 80, negatives: 20, positivePrior: 0.4 });
    expect(found.majority).toEqual(found.always_negative);
  });

  it('give the random answer the expectation of a simulated coin', () => {
    expect(baselines.random).toMatchObject({ n: 100, acc_pos: 0.75, acc_neg: 0.25, balanced_accuracy: 0.5 });
    let state = 12345;
    const coin = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32 < 0.75 ? 1 : 0;
    };
    const steps = Array.from(
      { length: 200_000 },
      (_, i) => ({ label: i % 5 === 0 ? 0 : 1, verdict: coin() }) as const,
    );
    const simulated = confusionMetrics(countConfusion(steps, { invalidAsWrong: true }).confusion);
    expect(baselines.random.f1_macro).toBeCloseTo(simulated.f1_macro, 2);
  });

  it('refuse a share outside [0, 1]', () => {
    const bad = () => baselineMetrics({ positives: 1, negatives: 1, positivePrior: Number.NaN });
    expect(bad).toThrow('the share of positive labels must be in [0, 1], found NaN');
  });
});

describe('area under the ROC curve', () => {
  it('is the share of pairs in the right order, with ties counted half', () => {
    const row = fc.record({ score: fc.integer({ min: 0, max: 5 }), label: fc.integer({ min: 0, max: 1 }) });
    fc.assert(
      fc.property(fc.array(row, { maxLength: 30 }), (rows) => {
        let [won, pairs] = [0, 0];
        for (const positive of rows.filter((r) => r.label === 1)) {
          for (const negative of rows.filter((r) => r.label === 0)) {
            pairs++;
            won += positive.score > negative.score ? 1 : positive.score === negative.score ? 0.5 : 0;
          }
        }
        const found = rocAuc(
          rows.map((r) => r.score),
          rows.map((r) => r.label),
        );
        if (pairs === 0) expect(found).toBeUndefined();
        else expect(found).toBeCloseTo(won / pairs, 12);
      }),
    );
  });

  it('orders infinite scores and refuses NaN', () => {
    expect(rocAuc([Number.NEGATIVE_INFINITY, -3, Number.POSITIVE_INFINITY], [0, 0, 1])).toBe(1);
    expect(() => rocAuc([0.5, Number.NaN], [0, 1])).toThrow('score 1 is not a number');
    expect(() => rocAuc([0.5], [0, 1])).toThrow('found 1 scores and 2 labels');
  });
});

describe('pass@k', () => {
  it('matches the reference', () => {
    for (const { v, ...counts } of golden.pass_at_k) expect(passAtK(counts)).toBeCloseTo(v, 12);
  });

  it('is exact even if binomials overflow', () => {
    expect(passAtK({ n: 2000, c: 1, k: 1000 })).toBeCloseTo(0.5, 12);
  });

  it('refuses impossible counts', () => {
    expect(() => passAtK({ n: 4, c: 5, k: 1 })).toThrow('found n=4, c=5, k=1');
    expect(() => passAtK({ n: 4, c: 1, k: 5 })).toThrow(RangeError);
  });
});

describe('ProcessBench', () => {
  it('matches the reference', () => {
    const labels = [...Array(10).fill(2), ...Array(10).fill(-1)];
    const predictions = [...Array(4).fill(2), 1, 3, -1, undefined, 0, 0, ...Array(9).fill(-1), 0];
    const score = processBenchScore(labels, predictions);
    const { err_acc, cor_acc, f1 } = golden.processbench;
    expect(100 * score.err_acc).toBeCloseTo(err_acc, 10);
    expect(100 * score.cor_acc).toBeCloseTo(cor_acc, 10);
    expect(100 * score.f1).toBeCloseTo(f1, 10);
  });

  it('is 0 if nothing is right or nothing was judged', () => {
    expect(processBenchScore([], [])).toEqual({ err_acc: 0, cor_acc: 0, f1: 0 });
    expect(processBenchScore([-1], [undefined])).toEqual({ err_acc: 0, cor_acc: 0, f1: 0 });
    expect(() => processBenchScore([1, 2], [1])).toThrow('found 1 for 2 labels');
  });
});
