// Requests that are scored in one call.
import { expect, it } from 'vitest';
import { scorer } from '../../src/scoring/scorer.js';
import { ScoreQueue } from '../../src/serve/score-queue.js';

it('answers the others where a model gives something that is not a number for one', async () => {
  const calls: number[] = [];
  const model = scorer({
    name: 'prm',
    score: async (solutions) => {
      calls.push(solutions.length);
      return solutions.map(({ problem }) => ({ scores: [problem === 'bad' ? Number.NaN : 0.5] }));
    },
  });
  const queue = new ScoreQueue();
  const { signal } = new AbortController();
  const ask = (problem: string) => queue.score(model, [{ problem, steps: ['s'] }], signal);
  const [first, bad, other] = await Promise.allSettled([ask('first'), ask('bad'), ask('other')]);
  expect([first, other]).toEqual([1, 2].map(() => ({ status: 'fulfilled', value: [{ scores: [0.5] }] })));
  expect(bad).toMatchObject({ status: 'rejected', reason: { code: 'E_NONFINITE' } });
  // The first is asked alone, the two that wait in one call, and then each of them again.
  expect(calls).toEqual([1, 2, 1, 1]);
});
