import { expect, test } from 'vitest';
import { lengthClassifier } from '../../src/eval/length-classifier.js';
import { logisticRegression } from '../../src/eval/statistics/logistic.js';

test('logistic regression solves ∂L/∂w = 0', () => {
  // Of 4 rows with x = 1 three are right, of 4 with x = −1 one: weights (0, log 3), but for the ridge.
  const rows = [1, 1, 1, 1, -1, -1, -1, -1].map((x) => [1, x]);
  const [constant, slope] = logisticRegression(rows, [1, 1, 1, 0, 1, 0, 0, 0]);
  expect(constant).toBeCloseTo(0, 6);
  expect(slope).toBeCloseTo(Math.log(3), 1);
});

test('tells solutions that stop early from those that state an answer', () => {
  const solution = (last: string, outcome: 0 | 1) => ({
    steps: [{ text: last, label: null, kind: 'normal' as const }],
    outcome,
  });
  const judge = lengthClassifier([
    ...Array.from({ length: 20 }, (_, i) => solution(`So the answer is ${i}.`, 1)),
    ...Array.from({ length: 20 }, (_, i) => solution(`So we add ${i}`, 0)),
  ]);
  expect(judge(solution('Then the answer is 77.', 1))).toBeGreaterThan(0.8);
  expect(judge(solution('Then we double 5', 1))).toBeLessThan(0.2);
});

test('without solutions it knows nothing', () => {
  expect(lengthClassifier([])({ steps: [] })).toBe(0.5);
});
