import { expect, it } from 'vitest';
import { stepRange, valueRange } from '../../src/report/axis-range.js';

const [shares, others] = [{ isShare: true }, { isShare: false }];

it('shows all shares around a single one, or equal ones', () => {
  for (const value of [0, 0.85, 1, 1 - Number.EPSILON])
    expect(valueRange(value, Math.min(1, value * (1 + 1e-15)), shares)).toEqual([0, 1]);
});

it('keeps many shares within 0 and 1, and near to what they are', () => {
  expect(valueRange(0, 1, shares)).toEqual([0, 1]);
  const [low, high] = valueRange(0.9, 0.99, shares);
  expect(low).toBeCloseTo(0.8928, 10);
  expect(high).toBeCloseTo(0.9972, 10);
  expect(valueRange(0.9, 1, shares)[1]).toBe(1);
  // A value that is no share is a mistake that a curve must show.
  expect(valueRange(-0.5, 2, shares)).toEqual([-0.7, 2.2]);
  expect(valueRange(2, 2, shares)).toEqual([0, 2]);
});

it('shows a single value, or equal ones, from 0 on', () => {
  expect(valueRange(0.7, 0.7, others)).toEqual([0, 1.4]);
  expect(valueRange(-3, -3, others)).toEqual([-6, 0]);
  expect(valueRange(0, 0, others)).toEqual([0, 1]);
});

it('leaves room around many values, below 0 only where one is', () => {
  expect(valueRange(100, 200, others)).toEqual([92, 208]);
  expect(valueRange(1, 101, others)).toEqual([0, 109]);
  expect(valueRange(-100, 100, others)).toEqual([-116, 116]);
});

it('shows a single step within those of the run, and many as they are', () => {
  expect(stepRange([90], 180, [0, 180])).toEqual([0, 180]);
  expect(stepRange([180], 180, [0, 360])).toEqual([0, 180]);
  expect(stepRange([0], 0, [0, 100])).toEqual([0, 1]);
  // Two points, or the part to which the reader zoomed.
  expect(stepRange([90, 180], 180, [90, 180])).toEqual([90, 180]);
  expect(stepRange([10, 20, 30], 180, [12, 18])).toEqual([12, 18]);
});
