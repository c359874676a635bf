import { expect, it } from 'vitest';
import { type EvaluatedRow, evaluationMetrics } from '../../../src/methods/rounds/evaluate.js';

const row = (problem: number, right: boolean, steps: readonly (0 | 1 | null)[]): EvaluatedRow => ({
  problem,
  sample: 0,
  text: steps.map((_, i) => `${i} + 1 = ${i + 1}`).join('\n'),
  tokens: 5,
  finish_reason: 'stop',
  answer: '1',
  right,
  steps,
});

it('what the judge did not judge is not clean, and its share is reported', () => {
  const metrics = evaluationMetrics([
    row(0, true, [1, 1]),
    row(1, true, [1, null]),
    row(2, true, [1, 0]),
    row(3, false, [1, 1]),
  ]);
  expect(metrics.right_and_clean?.value).toBe(1 / 4);
  expect(metrics.unjudged_steps?.value).toBe(1 / 8);
  // Of the right solutions, each of which has a judged step.
  expect(metrics.step_errors?.value).toBeCloseTo(1 / 3);
});
