// Metrics against scikit-learn, statsmodels and numpy on the same judged steps.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verdictMetrics } from '../../src/eval/evaluate-verdicts.js';
import {
  bootstrapIntervals,
  ProblemSample,
  type ProblemStep,
  percentileInterval,
  resample,
} from '../../src/eval/statistics/bootstrap.js';
import { calibration } from '../../src/eval/statistics/calibration.js';
import { mcnemar } from '../../src/eval/statistics/mcnemar.js';

interface Reference {
  readonly steps: readonly { problem: string; label: 0 | 1; a: number; b: number }[];
  readonly a: Record<string, number> & { bins: { mean: number[]; share: number[] } };
  readonly mcnemar: readonly { only_a: number; only_b: number; exact_p: number; mid_p: number }[];
  readonly bootstrap: { readonly a: Record<string, [number, number]> };
}

const golden: Reference = JSON.parse(
  readFileSync(new URL('../golden/evaluation.json', import.meta.url), 'utf8'),
);

const judged = golden.steps.map(
  ({ problem, label, a }): ProblemStep => ({ problem, label, probability: a, verdict: a >= 0.5 ? 1 : 0 }),
);

describe('verdict metrics', () => {
  it('are those of scikit-learn', () => {
    const found = verdictMetrics(judged, { invalidAsWrong: true });
    const names = ['accuracy', 'acc_pos', 'acc_neg', 'balanced_accuracy', 'auc'] as const;
    for (const name of [...names, 'f1_pos', 'f1_neg', 'f1_macro', 'f1_micro', 'f1_weighted'] as const) {
      expect(found[name], name).toBeCloseTo(golden.a[name]!, 12);
    }
  });
});

describe('calibration', () => {
  it('is that of scikit-learn', () => {
    const found = calibration(judged)!;
    expect(found.brier).toBeCloseTo(golden.a.brier!, 12);
    expect(found.ece).toBeCloseTo(golden.a.ece!, 12);
    expect(found.bins).toHaveLength(golden.a.bins.mean.length);
    found.bins.forEach(({ probability, positive_share }, i) => {
      expect(probability).toBeCloseTo(golden.a.bins.mean[i]!, 12);
      expect(positive_share).toBeCloseTo(golden.a.bins.share[i]!, 12);
    });
  });

  it('counts every step once, whatever its probability', () => {
    const step = fc.record({
      label: fc.constantFrom(0 as const, 1 as const),
      probability: fc.oneof(fc.double({ min: 0, max: 1, noNaN: true }), fc.constantFrom(0, 0.1, 0.3, 0.7, 1)),
    });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1 }), (steps) => {
        const found = calibration(steps)!;
        expect(found.bins.reduce((sum, { n }) => sum + n, 0)).toBe(steps.length);
        for (const { from, to, probability } of found.bins) {
          expect(probability).toBeGreaterThanOrEqual(from - 1e-9);
          expect(probability).toBeLessThanOrEqual(to + 1e-9);
        }
        expect(found.ece).toBeLessThanOrEqual(1);
      }),
    );
    expect(calibration([])).toBeUndefined();
    expect(calibration([{ label: 1, probability: 1 }])).toMatchObject({
      ece: 0,
      brier: 0,
      bins: [{ from: 0.9, to: 1 }],
    });
  });
});

describe("McNemar's test", () => {
  it('has the p-values of statsmodels and scipy', () => {
    for (const { only_a, only_b, exact_p, mid_p } of golden.mcnemar) {
      const found = mcnemar(only_a, only_b);
      expect(found).toMatchObject({ only_a, only_b });
      expect(found.exact_p / exact_p).toBeCloseTo(1, 9);
      expect(found.mid_p / mid_p).toBeCloseTo(1, 9);
      expect(mcnemar(only_b, only_a)).toMatchObject({ exact_p: found.exact_p, mid_p: found.mid_p });
    }
  });

  it('is at most 1, and falls with an uneven split', () => {
    fc.assert(
      fc.property(fc.nat(500), fc.nat(500), (a, b) => {
        const { exact_p, mid_p } = mcnemar(a, b);
        expect(exact_p).toBeLessThanOrEqual(1);
        expect(mid_p).toBeLessThanOrEqual(exact_p);
        expect(mid_p).toBeGreaterThan(0);
        if (a > b && b > 0) expect(mcnemar(a + 1, b - 1).exact_p).toBeLessThan(exact_p);
      }),
    );
    expect(() => mcnemar(-1, 0)).toThrow(RangeError);
  });
});

describe('bootstrap intervals', () => {
  const settings = { seed: 1, resamples: 8000, invalidAsWrong: true };

  it('are those of a numpy bootstrap over the same problems', () => {
    const found = bootstrapIntervals(judged, settings)!;
    expect(found).toMatchObject({ problems: 60, resamples: 8000, seed: 1, confidence: 0.95 });
    for (const [metric, ends] of Object.entries(golden.bootstrap.a)) {
      found.metrics[metric as 'auc']!.forEach((end, i) => {
        expect(Math.abs(end - ends[i]!), metric).toBeLessThan(0.006);
      });
    }
  });

  it('of a class count the problems that have it, and no resample without it', () => {
    // 3 right steps, all seen as right; of 9 wrong ones 3 are seen. A resample lacks problems 0 to 2 in (9/12)^12 = 3.2 %.
    const steps = Array.from({ length: 12 }, (_, i) => ({
      problem: String(i),
      label: i < 3 ? (1 as const) : (0 as const),
      verdict: i < 9 ? (1 as const) : (0 as const),
      probability: i < 3 ? 0.9 : 0.1,
    }));
    const { metrics } = bootstrapIntervals(steps, settings)!;
    // Wilson's lower end for 3 of 3: 3 / (3 + 1.96²).
    const open = [expect.closeTo(0.4385, 4), 1];
    expect(metrics.acc_pos).toEqual(open);
    // Any of the 12 problems may show a pair in the wrong order: 1.96² / (12 + 1.96²) = 24.2 %.
    expect(metrics.auc).toEqual([expect.closeTo(0.7575, 4), 1]);
    // A mean with a recall of 1 is at least one half.
    expect(metrics.balanced_accuracy![0]).toBeGreaterThanOrEqual(0.5);
    // The whole data lack a class: no resample can have it.
    const wrong = steps.slice(3);
    expect(bootstrapIntervals(wrong, settings)!.metrics.acc_pos).toEqual([0, expect.closeTo(0.2991, 4)]);
  });

  it('depend on the seed alone', () => {
    const few = { ...settings, resamples: 40 };
    expect(bootstrapIntervals(judged, few)).toEqual(bootstrapIntervals(judged, few));
    expect(bootstrapIntervals(judged, few)).not.toEqual(bootstrapIntervals(judged, { ...few, seed: 2 }));
  });

  it('count a problem drawn twice as two, also in the ties of the AUC', () => {
    const step = fc.record({
      problem: fc.constantFrom('a', 'b', 'c'),
      label: fc.constantFrom(0 as const, 1 as const),
      verdict: fc.constantFrom(0 as const, 1 as const, undefined),
      probability: fc.integer({ min: 0, max: 4 }).map((quarters) => quarters / 4),
    });
    fc.assert(
      fc.property(fc.array(step), fc.array(fc.nat(3), { minLength: 3, maxLength: 3 }), (steps, times) => {
        const names = [...new Set(steps.map(({ problem }) => problem))];
        const repeated = steps.flatMap((one) => Array(times[names.indexOf(one.problem)]).fill(one));
        const sample = new ProblemSample(steps, { invalidAsWrong: true });
        const weights = Uint32Array.from(times.slice(0, names.length));
        const { invalid: _, auc, ...metrics } = verdictMetrics(repeated, { invalidAsWrong: true });
        expect(sample.metrics(weights)).toEqual(metrics);
        if (auc === undefined) expect(sample.auc(weights)).toBeUndefined();
        else expect(sample.auc(weights)).toBeCloseTo(auc, 12);
      }),
    );
  });

  it('draw as many problems as the data has, all equally often', () => {
    const drawn = [0, 0, 0, 0, 0];
    resample(5, { seed: 3, resamples: 20_000 }, (weights) => {
      expect(weights.reduce((sum, weight) => sum + weight)).toBe(5);
      weights.forEach((weight, i) => {
        drawn[i]! += weight;
      });
    });
    for (const count of drawn) expect(Math.abs(count - 20_000)).toBeLessThan(4 * Math.sqrt(20_000));
  });

  it('need two problems, and both classes for the AUC', () => {
    const one = judged.map((step) => ({ ...step, problem: 'one' }));
    expect(bootstrapIntervals(one, settings)).toBeUndefined();
    const correct = judged.filter(({ label }) => label === 1);
    const { metrics } = bootstrapIntervals(correct, { ...settings, resamples: 20 })!;
    expect(metrics).not.toHaveProperty('auc');
    expect(metrics).toHaveProperty('acc_pos');
  });

  it('leave out unreadable verdicts if the metrics do', () => {
    const invalid = judged.map((step, i) => (i % 2 === 0 ? step : { ...step, verdict: undefined }));
    const all = bootstrapIntervals(invalid, { ...settings, resamples: 200 })!;
    const read = bootstrapIntervals(invalid, { ...settings, resamples: 200, invalidAsWrong: false })!;
    expect(read.metrics.accuracy![0]).toBeGreaterThan(all.metrics.accuracy![1]);
  });

  it('have the percentiles of numpy', () => {
    // numpy.percentile([3, 1, 2, 10], [2.5, 97.5])
    const [low, high] = percentileInterval([3, 1, 2, 10]);
    expect(low).toBeCloseTo(1.075, 12);
    expect(high).toBeCloseTo(9.475, 12);
    expect(percentileInterval([4])).toEqual([4, 4]);
  });
});
