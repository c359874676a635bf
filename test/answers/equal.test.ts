// answersEqual on pairs of each category, in both orders.
import { describe, expect, it } from 'vitest';
import { answersEqual } from '../../src/answers/equal.js';
import { grade } from '../../src/answers/grade.js';
import { CASES } from './cases.js';

describe.each(Object.entries(CASES))('%s', (_, cases) => {
  it.each(cases)('%s %s %s', (got, relation, expected) => {
    expect(answersEqual(got, expected).equal).toBe(relation === '=');
    expect(answersEqual(expected, got).equal).toBe(relation === '=');
  });
});

// Where a reading is open: that of Math-Verify 0.9 in a box, as research/answers.md has it.
it.each([
  ['a dozen', '12', false],
  ['two dozen', '24', false],
  ['9books', '9', false],
  ['9x', '9', false],
  ['3pi', '3', false],
  ['9cm', '9', true],
  ['9hours', '9', true],
  // Not taken, since 9 times m may be meant.
  ['9m', '9', false],
  ['9 books', '9', true],
  ['9\\text{books}', '9', true],
])('%s beside %s is the same: %s', (got, expected, same) => {
  expect(answersEqual(got, expected).equal).toBe(same);
  expect(grade(`The answer is \\boxed{${got}}.`, expected).correct).toBe(same);
});

describe('sums, products and functions of several numbers', () => {
  it.each([
    ['\\sum_{i=1}^{3} i', '6', '5'],
    ['\\sum_{i=1}^3 i^2 + 1', '15', '14'],
    ['\\prod_{k=2}^{4} k', '24', '9'],
    ['\\sum_{i=1}^{3} (i+1)', '9', '7'],
    ['\\sum_{j=3}^{2} j', '0', '5'],
    ['\\gcd(12, 18)', '6', '36'],
    ['\\lcm(4, 6)', '12', '24'],
    ['\\max\\{1, \\frac{5}{2}, 2\\}', '2.5', '2'],
    ['\\min(3, -1)', '-1', '3'],
  ])('%s is %s and not %s', (got, value, other) => {
    expect(answersEqual(got, value)).toEqual({ equal: true, method: 'exact' });
    expect(answersEqual(got, other)).toEqual({ equal: false, method: 'exact' });
  });

  it.each([
    ['\\int_0^1 x dx', '1/2'],
    ['\\lim_{x \\to 0} x', '0'],
    ['\\sum_{k=1}^{\\infty} 2^{-k}', '1'],
    ['\\sum_{i=1}^{2} \\sum_{j=1}^{i} j', '4'],
    ['\\sum_{i=1}^{5000} i', '12502500'],
  ])('%s beside %s is not decided, which no method but text says', (got, expected) => {
    expect(answersEqual(got, expected)).toEqual({ equal: false, method: 'text' });
    expect(answersEqual(got, got)).toEqual({ equal: true, method: 'text' });
  });
});
