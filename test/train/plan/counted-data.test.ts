// What a plan says of the data: labels only where there are some.
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { methodOf } from '../../../src/methods/table.js';
import { configuredTokenizer } from '../../../src/run/tokenizer.js';
import { formatCounts } from '../../../src/train/plan/counted-data.js';

const part = (solutions: number, [positive, negative, unlabelled] = [0, 0, 0]) => ({
  solutions,
  positive: positive as number,
  negative: negative as number,
  unlabelled: unlabelled as number,
});

it('counts labels of steps where there are some', () => {
  const counts = { train: part(3, [4, 2, 1]), validation: part(1, [0, 0, 2]), test: part(0) };
  expect(formatCounts(counts)).toEqual([
    '  train       3 solutions, 4 right and 2 wrong steps, 1 without a label to learn',
    '  validation  1 solution, 0 right and 0 wrong steps, 2 without a label to learn',
    '  test        0 solutions, 0 right and 0 wrong steps',
  ]);
});

it('says that whole solutions have none, and speaks of problems where there are no steps', () => {
  const whole = { train: part(3, [0, 0, 7]), validation: part(0), test: part(0) };
  expect(formatCounts(whole)).toEqual([
    '  train       3 solutions, 7 steps without a label to learn',
    '  validation  0 solutions',
    '  test        0 solutions',
  ]);
  const problems = { train: part(952), validation: part(10), test: part(0) };
  expect(formatCounts(problems)[0]).toBe('  train       952 problems');
});

it('pretraining learns no labels, and warns of none', async () => {
  const config = completeRunConfig({
    method: 'pretrain',
    model: { base: 'embedded' },
    data: { source: 'arithmetic', arithmetic: { samples: 60, error_rate: 0 } },
  });
  const method = await methodOf(config).load();
  const tokenizer = await configuredTokenizer(config.model);
  const data = await method.data(config, tokenizer, new AbortController().signal);
  expect(data?.summary.parts.train).toMatchObject({
    positive: 0,
    negative: 0,
    unlabelled: expect.any(Number),
  });
  expect(data?.summary.warnings).toEqual([]);
});
