// A published reward model on the command line: ProcessBench and PRMBench by its name, and a judgement of one solution.
import { expect, it } from 'vitest';
import { fileWith } from '../data/data-file.js';
import { TWINS, type Twin, twin } from '../scoring/twins.js';
import { cli } from './run-cli.js';

const lines = (rows: readonly object[]) => rows.map((row) => JSON.stringify(row)).join('\n');
const steps = ['2 + 3 = 6', '6 - 1 = 5', 'So it is 6.'];
const problem = 'What is 2 + 3?';

it('prints ProcessBench F1 by subset', async () => {
  const model = await twin(TWINS[0] as Twin);
  const rows = [-1, 0, 2].map((label, i) => ({
    id: `math-${i}`,
    problem: `${problem} (${i})`,
    steps,
    label,
  }));
  const data = fileWith('math.jsonl', lines(rows));
  const { code, stdout, stderr } = await cli('eval', 'correction', '--data', data, '--reward-model', model);
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/ProcessBench F1, math: \d+\.\d \(3 solutions; first wrong step found in/);
});

it("prints PRMBench's table", async () => {
  const model = await twin(TWINS[0] as Twin);
  const rows = ['circular', 'redundency', 'deception'].map((classification, i) => {
    const modified = { modified_question: `${problem} (${i})`, modified_process: steps };
    return { ...modified, error_steps: [i + 1], classification };
  });
  const data = fileWith('prmbench.jsonl', lines(rows));
  const { code, stdout, stderr } = await cli('eval', 'correction', '--data', data, '--reward-model', model);
  expect(code, stderr).toBe(0);
  for (const name of ['circular', 'redundency', 'deception'])
    expect(stdout).toMatch(new RegExp(`${name} +3 `));
  expect(stdout).toMatch(
    /PRMBench PRM-Score: \d+\.\d; simplicity \d+\.\d, sensitivity \d+\.\d \(1 of 3 classes\)/,
  );
});

it('judges the steps of a file', async () => {
  const model = await twin(TWINS[0] as Twin);
  const file = fileWith('problem.txt', `${problem}\n\n${steps.join('\n')}\n`);
  const { code, stdout, stderr } = await cli('judge', model, file);
  expect(code, stderr).toBe(0);
  // As in scores.json.
  expect(stdout).toMatch(/1 +0\.378 +wrong +2 \+ 3 = 6/);
});
