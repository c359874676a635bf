import { expect, it } from 'vitest';
import { type SolvedReport, solvedRows } from '../../../src/eval/solving/run-report.js';

it('the table of solved problems says in words what was measured', () => {
  const names = ['pass@1', 'right_and_clean', 'step_errors', 'wrong_steps', 'duplicate_steps', 'tokens'];
  const report: SolvedReport = {
    method: 'ppo',
    unit: 'problems',
    data: { problems: 2, trained_tokens: 10 },
    metrics: {},
    models: { base: { all: Object.fromEntries(names.map((name) => [name, { value: 0.5 }])) } },
  };
  expect(solvedRows(report).map(([title]) => title)).toEqual([
    '2 problems, %',
    'solved',
    'right with every step right',
    'right with a wrong step',
    'wrong steps of right ones',
    'steps said twice',
    'cut off',
    'tokens',
  ]);
});
