// When two texts are the same: for a split, and as one problem.
import { expect, it } from 'vitest';
import { normalizeProblem } from '../../src/records/record.js';
import { problemText } from '../../src/records/same-text.js';

it.each([
  ['Find  x.', 'Find x. ', true, true],
  ['Cafe\u0301', 'Caf\u00e9', true, true],
  ['Find X.', 'find x.', true, false],
  ['１２ + ３', '12 + 3', true, false],
  ['2³', '23', false, false],
  ['H₂O and x₁₂', 'H2O and x12', false, false],
  ['3½', '31⁄2', false, false],
  ['xⁿ', 'xn', false, false],
])('%j and %j: too alike for a split %s, one problem %s', (a, b, alike, one) => {
  expect(normalizeProblem(a) === normalizeProblem(b)).toBe(alike);
  expect(problemText(a) === problemText(b)).toBe(one);
});
