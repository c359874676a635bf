import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { confusionMetrics } from '../../../src/eval/statistics/metrics.js';
import {
  bestThreshold,
  confusionAt,
  type ScoredStep,
  thresholdSweep,
} from '../../../src/eval/statistics/thresholds.js';

const steps = (...pairs: (readonly [number, 0 | 1])[]): ScoredStep[] =>
  pairs.map(([probability, label]) => ({ probability, label }));

const scored = fc.array(
  fc.record({
    label: fc.constantFrom(0 as const, 1 as const),
    probability: fc.oneof(
      fc.constantFrom(0, 0.25, 0.5, 1),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.constantFrom(0.5 + Number.EPSILON / 2, Number.MIN_VALUE),
    ),
  }),
  { minLength: 1, maxLength: 25 },
);

describe('the best threshold', () => {
  it.each(['f1_macro', 'balanced_accuracy'] as const)('is never beaten by any other: %s', (aim) => {
    fc.assert(
      fc.property(scored, (rows) => {
        const { threshold, value } = bestThreshold(rows, aim);
        const at = (t: number) => confusionMetrics(confusionAt(rows, t))[aim];
        expect(at(threshold)).toBe(value);
        // All thresholds that differ: at each probability (it and all above count as correct), and above all.
        const max = Math.max(...rows.map(({ probability }) => at(probability)));
        const none = rows.some(({ probability }) => probability === 1) ? 0 : at(1);
        expect(value).toBe(Math.max(max, none));
        expect(threshold).toBeGreaterThanOrEqual(0);
        expect(threshold).toBeLessThanOrEqual(1);
      }),
    );
  });

  it('lies half-way between the steps that it separates', () => {
    const rows = steps([0.1, 0], [0.2, 0], [0.6, 1], [0.9, 1]);
    expect(bestThreshold(rows, 'f1_macro')).toEqual({ threshold: 0.4, value: 1 });
  });

  it('is the nearest to ½ among equally good ones', () => {
    // A threshold above the first step gets three of four right, and so does one below the last.
    const rows = steps([0.1, 0], [0.45, 1], [0.65, 0], [0.9, 1]);
    expect(bestThreshold(rows, 'balanced_accuracy')).toEqual({ threshold: 0.275, value: 0.75 });
    expect(bestThreshold(steps([0.2, 1], [0.7, 0]), 'balanced_accuracy')).toEqual({
      threshold: 0.85,
      value: 0.5,
    });
  });
});

describe('a reason that did not end', () => {
  // Written verdicts have a probability of ½ there.
  const unreadable = ([1, 0] as const).map(
    (label) => ({ label, probability: 0.5, unreadable: true }) as const,
  );
  const rows = [...steps([0.3, 0], [0.4, 1], [0.8, 1]), ...unreadable];

  it('is wrong for its class at every threshold', () => {
    for (const threshold of [0.1, 0.5, 0.9]) {
      const { tp, fn, fp, tn } = confusionAt(unreadable, threshold);
      expect([tp, fn, fp, tn]).toEqual([0, 1, 1, 0]);
    }
  });

  it('does not move the threshold that is chosen', () => {
    const { threshold, value } = bestThreshold(rows, 'f1_macro');
    expect(threshold).toBeCloseTo(0.35, 12);
    expect(value).toBe(confusionMetrics({ tp: 2, fn: 1, fp: 1, tn: 1 }).f1_macro);
  });
});

describe('the sweep', () => {
  const test = steps([0.15, 0], [0.35, 1], [0.55, 0], [0.95, 1]);

  it('calls a step correct from the threshold on', () => {
    const { table } = thresholdSweep(steps([0.5, 1], [0.25, 0]));
    expect(table.map(({ threshold }) => threshold)).toEqual([
      0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    ]);
    const right = table.filter(({ metrics }) => metrics.f1_macro === 1).map(({ threshold }) => threshold);
    expect(right).toEqual([0.3, 0.35, 0.4, 0.45, 0.5]);
  });

  it('selects on validation steps and reports the metrics of the judged ones', () => {
    const validation = steps([0.1, 0], [0.8, 0], [0.9, 1], [0.95, 1]);
    const { chosen } = thresholdSweep(test, validation);
    expect(chosen?.f1_macro.threshold).toBeCloseTo(0.85, 12);
    expect(chosen?.f1_macro.validation).toBe(1);
    expect(chosen?.f1_macro.metrics).toEqual(confusionMetrics({ tp: 1, fn: 1, fp: 0, tn: 2 }));
  });

  it('selects nothing without validation steps of both classes', () => {
    expect(thresholdSweep(test)).not.toHaveProperty('chosen');
    expect(thresholdSweep(test, steps([0.1, 1], [0.7, 1]))).not.toHaveProperty('chosen');
  });
});
