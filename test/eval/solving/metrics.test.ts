// Every metric on problems that are small enough to count by hand.
import { describe, expect, it } from 'vitest';
import { contributions, defaultKs, metricOf, metricValues } from '../../../src/eval/solving/metrics.js';
import type { GradedSample } from '../../../src/eval/solving/sample.js';

function sample(answer: string | null, right: boolean, more: Partial<GradedSample> = {}): GradedSample {
  return {
    problem: 0,
    sample: 0,
    text: '',
    prompt: '',
    tokens: 10,
    finish_reason: 'stop',
    answer,
    right,
    ...more,
  };
}

const values = (problems: readonly (readonly GradedSample[])[], options = {}) =>
  Object.fromEntries([...contributions(problems, options)].map(([name, of]) => [name, metricOf(of)]));

describe('metrics', () => {
  const problems = [
    [
      sample('1', true),
      sample('2', false),
      sample('1', true),
      sample(null, false, { finish_reason: 'length' }),
    ],
    [sample('5', false), sample('5', false), sample('6', true, { tokens: 30 }), sample('5', false)],
  ];

  it('are means over problems', () => {
    expect(values(problems)).toEqual({
      'pass@1': (2 / 4 + 1 / 4) / 2,
      // 1 − C(2,2)/C(4,2) and 1 − C(3,2)/C(4,2).
      'pass@2': expect.closeTo((5 / 6 + 3 / 6) / 2, 12),
      'pass@4': 1,
      'maj@4': 0.5,
      unanswered: 1 / 8,
      truncated: 1 / 8,
      tokens: 12.5,
      tokens_problem: 50,
    });
  });

  it('are those of the k that was asked for', () => {
    expect(Object.keys(values(problems, { ks: [3] }))).toEqual([
      'pass@3',
      'maj@3',
      'unanswered',
      'truncated',
      'tokens',
      'tokens_problem',
    ]);
    expect([1, 2, 3, 8, 12].map(defaultKs)).toEqual([[1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 12]]);
  });

  it('of a reward model: the AUC within a problem, which scores of whole problems leave at one half', () => {
    const scored = (scores: readonly number[][]) =>
      problems.map((samples, i) => samples.map((each, j) => ({ ...each, score: scores[i]![j]! })));
    // Right are samples 0 and 2 of the first problem and sample 2 of the second.
    const exact = [
      [0.4, 0.1, 0.3, 0.2],
      [0.6, 0.7, 0.9, 0.8],
    ];
    expect(values(scored(exact)).auc_within).toBe(1);
    const byProblem = [
      [0.9, 0.9, 0.9, 0.9],
      [0.1, 0.1, 0.1, 0.1],
    ];
    expect(values(scored(byProblem)).auc_within).toBe(0.5);
    // The first problem: 0.4 beats both wrong ones, 0.15 one of them; the second: 0.75 beats one of three.
    const partly = [
      [0.4, 0.1, 0.15, 0.2],
      [0.8, 0.9, 0.75, 0.7],
    ];
    expect(values(scored(partly)).auc_within).toBeCloseTo((3 / 4 + 1 / 3) / 2, 12);
  });

  it('of a reward model: the AUC within a problem counts no problem that is all right or all wrong', () => {
    const right = [sample('1', true, { score: 0.1 }), sample('1', true, { score: 0.9 })];
    const both = [sample('1', true, { score: 0.9 }), sample('2', false, { score: 0.1 })];
    expect(values([right, both]).auc_within).toBe(1);
    expect(values([right])).not.toHaveProperty('auc_within');
  });

  it('of a reward model: the best of k, and votes that weigh as much as their scores', () => {
    const scored = problems.map((samples, p) =>
      samples.map((each, i) => ({
        ...each,
        score: [
          [0.1, 0.8, 0.2, 0.9],
          [0.1, 0.1, 0.9, 0.1],
        ][p]![i]!,
      })),
    );
    const found = values(scored, { ks: [4] });
    expect(found['best@4']).toBe(0.5);
    expect(found['weighted@4']).toBe(0.5);
    // Below 0 a score is no weight: the logistic function of it is.
    const shifted = scored.map((samples) => samples.map((each) => ({ ...each, score: each.score * 10 - 9 })));
    expect(values(shifted, { ks: [4] })['weighted@4']).toBe(0.5);
  });

  it('of a judge: right solutions with a wrong step, and wrong steps in them', () => {
    const judged = [
      [sample('1', true, { steps: [1, 0, 1] }), sample('1', true, { steps: [1, 1, null] })],
      [sample('1', true, { steps: [null] }), sample('2', false, { steps: [0, 0] })],
    ];
    expect(values(judged)).toMatchObject({ step_errors: 1 / 2, wrong_steps: 1 / 5 });
  });

  it('have intervals over problems, and none for a single one', () => {
    const many = Array.from({ length: 100 }, (_, i) => [sample('1', i % 4 === 0)]);
    const { 'pass@1': pass } = metricValues(contributions(many));
    expect(pass?.value).toBe(0.25);
    const [low, high] = (pass?.interval ?? []) as [number, number];
    // ±1.96 √(¼ · ¾ / 100) = ±0.085.
    expect(low).toBeGreaterThan(0.14);
    expect(low).toBeLessThan(0.19);
    expect(high).toBeGreaterThan(0.31);
    expect(high).toBeLessThan(0.36);
    expect(metricValues(contributions(many.slice(0, 1)))['pass@1']).toEqual({ value: 1 });
  });

  it('have Wilson’s interval where every problem says the same', () => {
    const eight = (right: boolean) => Array.from({ length: 8 }, () => [sample('1', right, { steps: [1] })]);
    const all = metricValues(contributions(eight(true)));
    // 8 / (8 + 1.96²).
    expect(all['pass@1']).toEqual({ value: 1, interval: [expect.closeTo(0.6756, 4), 1] });
    expect(all.wrong_steps).toEqual({ value: 0, interval: [0, expect.closeTo(0.3244, 4)] });
    // Nothing bounds an amount, so that equal ones leave everything open.
    expect(all.tokens).toEqual({ value: expect.any(Number) });
    const none = metricValues(contributions(eight(false)));
    expect(none['pass@1']).toEqual({ value: 0, interval: [0, expect.closeTo(0.3244, 4)] });
    // No right solution has a step: a share of nothing is no share.
    expect(none).not.toHaveProperty('wrong_steps');
    expect(none).not.toHaveProperty('step_errors');
  });

  it('have intervals of the resamples that say something', () => {
    // Two of 40 problems have a right solution, and each of them a wrong step in it. Every eighth resample draws neither.
    const of = (right: boolean) => [sample('1', right, { steps: [0] })];
    const few = Array.from({ length: 40 }, (_, i) => of(i < 2));
    // 2 / (2 + 1.96²).
    expect(metricValues(contributions(few)).step_errors).toEqual({
      value: 1,
      interval: [expect.closeTo(0.3424, 4), 1],
    });
  });
});
