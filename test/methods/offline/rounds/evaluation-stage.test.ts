import { expect, it } from 'vitest';
import {
  type EvaluatedRow,
  evaluateStage,
  evaluationMetrics,
} from '../../../../src/methods/offline/rounds/evaluation-stage.js';
import type { SolutionSource } from '../../../../src/train/solutions/solution-source.js';

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

it('a problem that leaves no room for a solution counts as wrong', async () => {
  const source: SolutionSource = {
    sample: async (prompts, { n = 1 }) =>
      prompts.map(() =>
        Array.from({ length: n }, () => ({
          tokens: [1],
          logprobs: [0],
          text: 'The answer is 7',
          finishReason: 'stop' as const,
        })),
      ),
  };
  const problems = ['p', 'q', 'r'].map((problem) => ({ problem, answer: '7' }));
  const stage = evaluateStage({
    ...{ name: 'eval-0', problems, greedy: source, source, samples: 2, judge: undefined },
    prompts: [{ id: 0, ids: [1] }, undefined, { id: 2, ids: [1] }],
    settings: { save_steps: 0, save_total_limit: 1 } as never,
  });
  const made = await stage.open().step(0, new AbortController().signal);
  const rows = made?.rows as unknown as EvaluatedRow[];
  expect(rows.map(({ problem, sample, right }) => [problem, sample, right])).toEqual([
    ...[0, 1, 2].map((sample) => [0, sample, true]),
    ...[0, 1, 2].map((sample) => [1, sample, false]),
    ...[0, 1, 2].map((sample) => [2, sample, true]),
  ]);
  expect(rows[3]).toMatchObject({ finish_reason: 'too_long', text: '' });
  expect(evaluationMetrics(rows)['pass@1']?.value).toBeCloseTo(2 / 3);
});
