// answersEqual on pairs of each category, in both orders.
import { describe, expect, it } from 'vitest';
import { answersEqual } from '../../src/answers/equal.js';
import { CASES } from './cases.js';

describe.each(Object.entries(CASES))('%s', (_, cases) => {
  it.each(cases)('%s %s %s', (got, relation, expected) => {
    expect(answersEqual(got, expected).equal).toBe(relation === '=');
    expect(answersEqual(expected, got).equal).toBe(relation === '=');
  });
});
