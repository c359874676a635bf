import { describe, expect, it } from 'vitest';
import {
  firstWrongLabel,
  firstWrongVerdict,
  processBenchReport,
} from '../../../src/eval/statistics/solutions.js';

describe('the first wrong step', () => {
  it('follows from the labels up to it', () => {
    expect(firstWrongLabel([1, 1, 0, null, 1])).toBe(2);
    expect(firstWrongLabel([0, 0])).toBe(0);
    expect(firstWrongLabel([1, 1])).toBe(-1);
    expect(firstWrongLabel([1, null, 0])).toBeUndefined();
    expect(firstWrongLabel([1, null])).toBeUndefined();
  });

  it('is predicted as the first step without the verdict "right"', () => {
    const judge = (verdicts: readonly (0 | 1 | undefined)[], expected = verdicts.length) =>
      firstWrongVerdict(
        verdicts.map((verdict, step) => ({ step, verdict })),
        expected,
      );
    expect(judge([1, 1, 0, 0])).toBe(2);
    expect(judge([1, 1])).toBe(-1);
    expect(judge([1, undefined, 0])).toBeUndefined();
    expect(judge([0, undefined])).toBe(0);
    expect(judge([1, 1], 3)).toBeUndefined();
    expect(judge([1, 0], 3)).toBe(1);
  });
});

describe('the ProcessBench report', () => {
  it('scores each subset separately and takes the unweighted mean of their F1', () => {
    const report = processBenchReport([
      { subset: 'gsm8k', label: 1, prediction: 1 },
      { subset: 'gsm8k', label: 2, prediction: 0 },
      { subset: 'gsm8k', label: -1, prediction: -1 },
      { subset: 'math', label: 0, prediction: 0 },
      { subset: 'math', label: -1, prediction: undefined },
      { subset: 'math', label: -1, prediction: -1 },
      { subset: 'math', label: -1, prediction: 3 },
      { subset: 'math', label: -1, prediction: -1 },
    ]);
    // 2 · ½ · 1 / 1.5 and 2 · 1 · ½ / 1.5.
    expect(report).toEqual({
      subsets: {
        gsm8k: { n: 3, err_acc: 0.5, cor_acc: 1, f1: 2 / 3 },
        math: { n: 5, err_acc: 1, cor_acc: 0.5, f1: 2 / 3 },
      },
      average_f1: 2 / 3,
    });
  });

  it('says of one kind of solutions only what they tell', () => {
    const report = processBenchReport([
      { subset: 'faulty', label: 1, prediction: 1 },
      { subset: 'faultless', label: -1, prediction: 0 },
    ]);
    expect(report).toEqual({ subsets: { faulty: { n: 1, err_acc: 1 }, faultless: { n: 1, cor_acc: 0 } } });
  });

  it('is absent without solutions', () => {
    expect(processBenchReport([])).toBeUndefined();
  });
});
