import { expect, it, vi } from 'vitest';
import { distillRollouts } from '../../../src/methods/distill/rollouts.js';
import type { Device } from '../../../src/runtime/device.js';
import { answerTokenizer } from '../../../src/scoring/implicit/tokens.js';
import * as log from '../../../src/terminal/log.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import type { RunProblem } from '../../../src/train/solutions/problems.js';

it('cuts worked solutions off where a sampled one would be, and says so once', async () => {
  const warn = vi.spyOn(log, 'warn').mockImplementation(() => {});
  const solutions = ['12', '1234567', '12345678'];
  const tokenizer = byteTokenizer();
  const source = distillRollouts({
    ...{ device: {} as Device, lmbda: 0, seed: 1, longest: 8, teacher: undefined },
    onPolicy: { rollOut: () => Promise.reject(new Error('nothing is sampled')) },
    promptOf: () => ({ ids: [1] }) as never,
    problemOf: (item) => ({ problem: 'How many?', solution: solutions[item] }) as RunProblem,
    answers: answerTokenizer(tokenizer, '{problem}'),
  });
  const batch = (iteration: number) => ({
    ...{ items: [0, 1, 2], iteration, signal: new AbortController().signal },
  });
  const groups = await source.rollOut(batch(0));
  await source.rollOut(batch(1));
  // The template ends without white space, so that a blank comes before the solution, and the end of text after it.
  expect(groups?.map(({ answers }) => answers.map(({ tokens }) => tokens.length))).toEqual([[4], [8], [8]]);
  expect(groups?.map(({ answers }) => answers[0]?.truncated)).toEqual([false, true, true]);
  expect(warn.mock.calls).toEqual([
    [expect.stringMatching(/^2 of 3 worked solutions .* longer than rollout\.max_new_tokens \(8\)/)],
  ]);
});
