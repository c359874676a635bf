// What configurations are refused, and which problems an evaluation asks.
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { eachOnce } from '../../../src/methods/s3c/evaluation.js';

const config = (more: object) =>
  completeRunConfig({ method: 's3c', data: { source: 'word_problems' }, ...more } as never);

it('refuses choices among samples by their wrong step where they have none', () => {
  const corrections = { shape: 'post_hoc' };
  expect(config({ corrections })).toMatchObject({ s3c: { variant: 'step', clean_ratio: 'as_is' } });
  expect(() => config({ corrections, s3c: { variant: 'clean' } })).toThrow(/s3c\.variant tells samples by/);
  expect(() => config({ corrections, s3c: { clean_ratio: 1 } })).toThrow(/s3c\.clean_ratio tells samples by/);
});

it('asks a problem once, however many solutions of it there are', () => {
  const problems = ['What is 2 + 2?', 'what is  2 + 2?', 'What is 3?'].map((problem) => ({
    problem,
    answer: '4',
  }));
  expect(eachOnce(problems)).toHaveLength(2);
});
