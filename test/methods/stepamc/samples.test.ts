import { expect, test } from 'vitest';
import type { CreditedQuestion } from '../../../src/methods/stepamc/rollout.js';
import { answerMetrics } from '../../../src/methods/stepamc/samples.js';
import type { StepLabel } from '../../../src/records/record.js';

const asked = (label: StepLabel, verdict: 1 | 0) =>
  ({ label, answers: [{ share: 1, verdict }] }) as unknown as CreditedQuestion;

test('the accuracy of a class that no step has as its label is absent', () => {
  expect(answerMetrics([asked(null, 1), asked(null, 0)])).toEqual({
    rollout_verdicts: 2,
    rollout_invalid: 0,
  });
  expect(answerMetrics([asked(0, 1), asked(0, 0), asked(null, 1)])).toEqual({
    rollout_verdicts: 3,
    rollout_acc_neg: 0.5,
    rollout_invalid: 0,
  });
});
