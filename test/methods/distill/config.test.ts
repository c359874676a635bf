import { expect, it } from 'vitest';
import { parseRunConfig } from '../../../src/methods/config.js';

const parse = (more: string) =>
  parseRunConfig(
    `method: distill\nmodel: {base: word-problems-misread}\nlora: none\ndata: {source: word_problems}\n${more}`,
    { name: 'r.yaml' },
  );

it.each([
  ['', /needs a teacher: name a model as teacher.model/],
  ['teacher: {model: word-problems, url: http://x}', /two teachers/],
  ['teacher: {url: http://x}\ndistill: {beta: 0.5}', /set distill.beta to 1, found 0.5/],
  ['teacher: {url: http://x}\nrollout: {temperature: 0.7}', /rollout.temperature to 1, found 0.7/],
  [
    'teacher: {model: word-problems}\ndistill: {judge: oracle, right_weight: 0, wrong_weight: 0}',
    /no step has a weight/,
  ],
  ['teacher: {model: word-problems}\ndistill: {beta: 2}', /distill.beta/],
])('refuses %j in a sentence', (more, message) => {
  expect(() => parse(more)).toThrow(message);
});

it('takes a teacher, with TRL’s defaults for what TRL names', () => {
  const { config } = parse('teacher: {model: word-problems}');
  expect(config).toMatchObject({
    distill: { beta: 1, lmbda: 1, learning_rate: 'auto' },
    rollout: { temperature: 1 },
  });
});
