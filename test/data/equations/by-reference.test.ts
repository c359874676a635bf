import { expect, it } from 'vitest';
import { stepsByReference } from '../../../src/data/equations/by-reference.js';
import { openDevice } from '../../../src/runtime/device.js';
import { openScorer } from '../../../src/scoring/open.js';

const reference = {
  problem: 'Tom has 12 apples and buys 7 more. He gives half of them, and 1, away. How many has he left?',
  solution: 'He had 12 + 7 + 1 = <<12+7+1=20>>20.\nHe gave 20/2 = <<20/2=10>>10 away.\n#### 10',
  answer: '10',
};

it.each([
  ['a whole right solution', ['12+7+1=20', '20/2=10', 'The answer is: 10'], [1, 1, 1]],
  ['another way to the answer', ['12/2=6', '8/2=4', '6+4=10', 'The answer is: 10'], [1, 1, 1, 1]],
  ['a slip', ['12+7+1=21', '20/2=10', 'The answer is: 10'], [0, null, null]],
  ['a strange value', ['12+7+1=20', '20*2=40', 'The answer is: 40'], [1, 0, null]],
  ['an answer that stops too early', ['12+7+1=20', 'The answer is: 20'], [1, 0]],
  ['an unfinished solution', ['12+7+1=20'], [1]],
  ['an unfinished one with a wrong line at its end', ['12+7+1=20', '20-7=13'], [1, 0]],
  ['a line that computes nothing', ['Tom buys apples.', '12+7+1=20'], [null, 1]],
] as const)('%s', (_, steps, labels) => {
  expect(stepsByReference(reference, steps)).toEqual(labels);
});

it('judges by the name "reference", and needs worked solutions', async () => {
  const judge = await openScorer(openDevice('cpu', { threads: 1 }), 'reference');
  const solution = { problem: reference.problem, steps: ['12+7+1=20', '20*2=40'] };
  expect(await judge.score([{ ...solution, of: reference }])).toEqual([{ scores: [1, 0] }]);
  await expect(judge.score([solution])).rejects.toThrow(
    'the judge "reference" compares steps with worked solutions, and problem 1 has none',
  );
});
