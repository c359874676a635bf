import { expect, test } from 'vitest';
import { stepScale } from '../../../src/methods/stepamc/reward/judge.js';

test.each([0, -4, 1000])('scores of steps are told apart wherever their zero is: at %d', (zero) => {
  const wrong = [2.5, 3, 3.4].map((score) => ({ label: 0 as const, score: score + zero }));
  const right = [4.6, 5, 5.5, 6].map((score) => ({ label: 1 as const, score: score + zero }));
  const { threshold, deviation } = stepScale([...right, ...wrong]);
  expect(threshold).toBeGreaterThan(3.4 + zero);
  expect(threshold).toBeLessThan(4.6 + zero);
  expect(deviation).toBeGreaterThan(1);
});

test('nothing to choose on, or scores that are all the same, still give a threshold', () => {
  expect(stepScale([])).toEqual({ threshold: 0, deviation: 1 });
  const { threshold, deviation } = stepScale([
    { label: 1, score: 3 },
    { label: 1, score: 3 },
  ]);
  expect(deviation).toBe(1);
  expect(threshold).toBeLessThan(3);
});
