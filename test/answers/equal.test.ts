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

// Where a reading is open: that of Math-Verify 0.9 in a box, as docs/evidence/answers.md has it.
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
