// The problems of a run that samples solutions: generated with their level, or read in the layouts of benchmarks.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { DataConfig } from '../../../src/config/schema.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { loggingTo } from '../../../src/terminal/log.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { configuredProblems } from '../../../src/train/solutions/problems.js';
import { solutionPrompts } from '../../../src/train/solutions/prompts.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const dataOf = (data: object): DataConfig =>
  completeRunConfig({ method: 'pretrain', data, pretrain: { loss_on: 'all' } } as never).data;

it('generates word problems with their level and what the oracle needs, and leaves drills out', async () => {
  const data = dataOf({
    source: 'word_problems',
    word_problems: { samples: 60, levels: [1, 1], drill_rate: 0.5 },
  });
  const { parts } = await configuredProblems(data);
  const all = Object.values(parts).flat();
  expect(all.length).toBeGreaterThan(20);
  expect(all.length).toBeLessThan(60);
  expect(new Set(all.map(({ group }) => group))).toEqual(new Set(['level 1', 'level 2']));
  expect(all.every(({ generated, answer }) => generated?.answer === answer)).toBe(true);
});

it('reads GSM8K and MATH in one file, each problem once', async () => {
  const path = join(temporaryDirectory(), 'train.jsonl');
  const rows = [
    { question: 'Two and two?', answer: '2 + 2 = 4\n#### 4' },
    { problem: 'Halve 7.', solution: 'It is $\\boxed{7/2}$.', level: 'Level 1' },
    { question: 'Two and  two?', answer: 'again\n#### 4' },
    { problem: 'Compute $2³$.', solution: '\\boxed{8}' },
    { problem: 'Compute $23$.', solution: '\\boxed{23}' },
  ];
  writeFileSync(path, rows.map((row) => JSON.stringify(row)).join('\n'));
  const { parts, reports } = await configuredProblems(
    dataOf({ train: path, source: 'problems', split: [1, 0, 0], test: path }),
  );
  expect(parts.train.map(({ problem, answer }) => [problem, answer])).toEqual([
    ['Two and two?', '4'],
    ['Halve 7.', '7/2'],
    ['Compute $2³$.', '8'],
    ['Compute $23$.', '23'],
  ]);
  expect(reports[0]?.rows).toBe(5);
});

it('says which problems have rows with different answers, of which the first counts', async () => {
  const path = join(temporaryDirectory(), 'train.jsonl');
  const row = (problem: string, answer: string) => JSON.stringify({ problem, answer });
  writeFileSync(
    path,
    [row('Half?', '1/2'), row('Half?', '0.5'), row('Two?', '2'), row('Two? ', '3')].join('\n'),
  );
  const lines: string[] = [];
  const { parts } = await loggingTo(
    (line) => lines.push(line),
    () => configuredProblems(dataOf({ train: path, source: 'problems', split: [1, 0, 0], test: path })),
  );
  expect(parts.train.map(({ answer }) => answer)).toEqual(['1/2', '2']);
  expect(lines.join()).toContain('1 problem has rows with different answers, such as "Two? "');
});

it('keeps the groups of a held-out part where training has one alone', async () => {
  const folder = temporaryDirectory();
  const rows = (...levels: readonly string[]) =>
    levels.map((level, i) => JSON.stringify({ problem: `${level} ${i}?`, answer: '1', level })).join('\n');
  const [train, test] = ['train', 'test'].map((name) => join(folder, `${name}.jsonl`)) as [string, string];
  writeFileSync(train, rows('easy', 'easy'));
  writeFileSync(test, rows('easy', 'hard'));
  const { parts } = await configuredProblems(
    dataOf({ train, test, source: 'problems', split: [1, 0, 0], group_by: 'level' }),
  );
  expect(parts.train.map(({ group }) => group)).toEqual([undefined, undefined]);
  expect(parts.test.map(({ group }) => group)).toEqual(['easy', 'hard']);
});

it('leaves out what does not fit with its solution, and refuses a template without its place', () => {
  const options = { tokenizer: byteTokenizer(), template: '{problem}\n', maxLength: 20, maxNewTokens: 10 };
  const { prompts } = solutionPrompts([{ problem: 'short' }, { problem: 'much too long' }], options);
  expect(prompts.map((prompt) => prompt?.id)).toEqual([0, undefined]);
  expect(() => solutionPrompts([{ problem: 'much too long' }], options)).toThrow('no problem leaves room');
  expect(() => solutionPrompts([], { ...options, template: 'solve' })).toThrow('{problem} exactly once');
});
