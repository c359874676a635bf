// What is reported of solved problems that were generated: the exact verdicts on their steps.
import { expect, it } from 'vitest';
import { wordProblems } from '../../../src/data/problems/generate.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import { rightSolution } from '../../../src/data/problems/solution.js';
import type { GradedSample } from '../../../src/eval/solving/sample.js';
import { judgedByOracle, solvedByGroup } from '../../../src/train/solutions/held-out.js';

const [word] = [...wordProblems({ seed: 1, samples: 1, levels: [0, 1] })] as [WordProblem];
const problem = { problem: word.problem, answer: word.answer, group: 'level 2', generated: word };
const right = rightSolution(word);
const sample = (lines: readonly string[]): readonly GradedSample[] => [
  {
    problem: 0,
    sample: 0,
    prompt: '',
    text: lines.join('\n'),
    tokens: 9,
    finish_reason: 'stop',
    answer: word.answer,
    right: true,
  },
];

it('a right answer after a repeated step is not clean', async () => {
  const problems = [problem, problem];
  const repeated = [right[0] as string, ...right];
  const judged = await judgedByOracle(problems, [sample(right), sample(repeated)]);
  const { all } = solvedByGroup(problems, judged);
  expect(all?.['pass@1']?.value).toBe(1);
  expect(all?.right_and_clean?.value).toBe(0.5);
  expect(all?.duplicate_steps?.value).toBeCloseTo(1 / (right.length + repeated.length));
});

it('problems without a plan are not judged', async () => {
  const { generated: _, ...bare } = problem;
  const [own] = await judgedByOracle([bare], [sample(right)]);
  expect(own?.[0]).not.toHaveProperty('steps');
  expect(solvedByGroup([bare], [own ?? []]).all).not.toHaveProperty('right_and_clean');
});
