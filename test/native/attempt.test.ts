import { expect, test } from 'vitest';
import { attempt } from '../../src/native/attempt.js';

const fails = () => {
  throw new Error('refused');
};

test('attempt gives the result, and nothing or the other value where the call throws', () => {
  expect(attempt(() => JSON.parse('null'), 7)).toBe(null);
  expect(attempt(fails)).toBe(undefined);
  expect(attempt(fails, 7)).toBe(7);
});
