import { expect, test } from 'vitest';
import type { CreditedQuestion } from '../../../src/methods/stepamc/rollout.js';
import { answerMetrics, rolloutSamples } from '../../../src/methods/stepamc/samples.js';
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

test('a sample has the reason of each answer as text, where it ended', () => {
  const answer = (tokens: readonly number[], reason?: number) => ({
    ...{ tokens, reward: 1, advantages: [0.5], oldLogprobs: [-1, -2], verdict: 1 },
    ...(reason === undefined ? {} : { reason }),
  });
  const question = {
    item: 0,
    step: 0,
    label: 1,
    answers: [answer([72, 105, 10, 49], 3), answer([49], 0), answer([72])],
  };
  const data = {
    records: { train: { get: () => ({ problem: 'p', steps: [{ text: 's' }] }) } },
    tokenizer: { tokenizer: { decode: (ids: readonly number[]) => String.fromCharCode(...ids) } },
  };
  const [sample] = rolloutSamples(
    [question as unknown as CreditedQuestion],
    data as unknown as Parameters<typeof rolloutSamples>[1],
    3,
  );
  expect((sample!.answers as { reason?: string }[]).map(({ reason }) => reason)).toEqual([
    'Hi',
    undefined,
    undefined,
  ]);
});
