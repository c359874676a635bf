import { describe, expect, it } from 'vitest';
import {
  intervalReading,
  meanInterval,
  sampleDeviation,
  studentCdf,
  studentQuantile,
} from '../../../src/eval/statistics/student.js';

describe("Student's t", () => {
  // Printed tables, e.g. Abramowitz and Stegun, table 26.10.
  it.each([
    [1, 12.706],
    [2, 4.303],
    [3, 3.182],
    [4, 2.776],
    [9, 2.262],
    [10, 2.228],
    [30, 2.042],
  ])('has the tabulated 97.5 %% quantile for %d degrees of freedom', (df, t) => {
    expect(studentQuantile(0.975, df)).toBeCloseTo(t, 3);
    expect(studentCdf(t, df)).toBeCloseTo(0.975, 4);
  });

  it('has no deviation of equal values, however their sum rounds', () => {
    const values = [29.866666666666667, 29.866666666666667, 29.866666666666667];
    expect(sampleDeviation(values)).toBe(0);
    expect(sampleDeviation([1, 2, 3])).toBe(1);
  });

  it('gives the interval and p of a paired test', () => {
    // scipy.stats.ttest_1samp([1.0, 2.5, -0.5, 1.5, 3.0], 0): t = 2.4495, p = 0.07048; confidence_interval() = (-0.2002, 3.2002)
    const { n, mean, interval, p } = meanInterval([1.0, 2.5, -0.5, 1.5, 3.0]);
    expect({ n, mean }).toEqual({ n: 5, mean: 1.5 });
    expect(interval![0]).toBeCloseTo(-0.2002, 3);
    expect(interval![1]).toBeCloseTo(3.2002, 3);
    expect(p).toBeCloseTo(0.07048, 4);
  });

  it('has no interval of one value, and none of width of equal ones', () => {
    expect(meanInterval([2])).toEqual({ n: 1, mean: 2 });
    // Equal values are no interval of width 0, nor a p of 0; 0.3 − 0.2 is equal to 0.2 − 0.1 but for rounding.
    expect(meanInterval([2, 2, 2])).toEqual({ n: 3, mean: 2 });
    expect(meanInterval([0, 0])).toEqual({ n: 2, mean: 0 });
    expect(meanInterval([0.3 - 0.2, 0.2 - 0.1])).toEqual({ n: 2, mean: expect.closeTo(0.1, 12) });
    expect(intervalReading({ n: 3 })).toBe('the same on every seed: no interval');
    expect(intervalReading({ n: 1 })).toBe('one seed shows nothing');
    expect(sampleDeviation([2])).toBe(0);
  });
});
