// Exact reasons: the right lines up to the judged one, and beside them what is judged.
import { expect, it } from 'vitest';
import { judgeSolution } from '../../../src/data/problems/oracle.js';
import type { WordProblem } from '../../../src/data/problems/problem.js';
import { reasonOf } from '../../../src/data/problems/reasons.js';
import { wordProblemRecords } from '../../../src/data/problems/records.js';
import { rightSolution } from '../../../src/data/problems/solution.js';

const problem = [...wordProblemRecords({ seed: 3, samples: 40, levels: [1, 0, 0] })]
  .flatMap((one) => one.problem ?? [])
  .find((one) => one.plan.length === 2 && /: \d+ \+/.test(rightSolution(one)[0] as string)) as WordProblem;
const [first, second, answer] = rightSolution(problem) as [string, string, string];
const reasonsOf = (...lines: string[]) => {
  const judged = judgeSolution(problem, lines).lines;
  return lines.map((_, i) => reasonOf(problem, judged, i));
};
const resultOf = (line: string) => line.replace(/^(\w+: ).*= /, '$1');
const withResult = (line: string, result: number) => line.replace(/= .*/, `= ${result}`);

it('repeats a right line and its result', () => {
  expect(reasonsOf(first, second, answer)).toEqual([
    `${first}; ${resultOf(first)}`,
    `${first}, ${second}; ${resultOf(second)}`,
    `${first}, ${second}, ${answer}; ${answer}`,
  ]);
});

it('computes anew what a wrong line and those after it should be', () => {
  const wrong = withResult(first, 999);
  const carried = withResult(second, 998);
  expect(reasonsOf(wrong, carried, 'Answer: 998')).toEqual([
    `${first}; ${resultOf(wrong)}`,
    `${first}, ${second}; ${resultOf(carried)}`,
    `${first}, ${second}, ${answer}; Answer: 998`,
  ]);
});

it('shows another name beside the right one, and a line without a name as it is', () => {
  const renamed = first.replace(/^\w+/, 'nuts');
  expect(reasonsOf(renamed)[0]).toBe(`${first}; ${resultOf(renamed)}`);
  const unnamed = first.replace(/^\w+: /, '');
  expect(reasonsOf(unnamed)[0]).toBe(`${first}; ${unnamed.replace(/.*= /, '')}`);
});

it('says the same as the label: the two sides differ exactly where a computation is wrong', () => {
  const odd = [
    ...wordProblemRecords({
      seed: 5,
      samples: 300,
      levels: [1, 0, 0],
      error_rate: 0.4,
      mistakes: ['slip', 'copied', 'swapped', 'quantity', 'answer'],
    }),
  ].flatMap(({ record }) =>
    record.steps.flatMap(({ text, label, rationale = '' }) => {
      const [worked = '', judged] = rationale.split('; ');
      const same = resultOf(worked.split(', ').at(-1) as string) === judged;
      return same === (label === 1) ? [] : [[text, rationale, label]];
    }),
  );
  expect(odd.length).toBeLessThan(10);
});
