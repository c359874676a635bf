import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { loadProblems } from '../../../src/data/benchmarks/load.js';
import { firstDifference } from '../../../src/data/equations/first-difference.js';
import { normalizeProblem } from '../../../src/records/record.js';

const reference = {
  problem: 'Tom has 12 apples and buys 7 more. He gives half of them, and 1, away. How many has he left?',
  solution: 'He had 12 + 7 + 1 = <<12+7+1=20>>20.\nHe gave 20/2 = <<20/2=10>>10 away.\n#### 10',
  answer: '10',
};
const labels = (steps: readonly string[], cutOff = false) => {
  const record = firstDifference(reference, { steps, cutOff });
  return [record.steps.map(({ label }) => label), record.steps.find(({ error }) => error)?.error];
};

describe('the first line whose exact value differs', () => {
  it('is one whose equation does not hold, whatever the answer', () => {
    expect(labels(['12 + 7 + 1 = 21', 'So 10 are left.', 'A: 10'])).toEqual([[0, null, null], 'arithmetic']);
  });
  it('is one with a value that the reference does not have, where the answer is wrong', () => {
    expect(labels(['12 + 7 = 19', '19 * 2 = 38', 'A: 38'])).toEqual([[0, null, null], 'value']);
    expect(labels(['12 + 7 + 1 = 20', '20 * 2 = 40', 'A: 40'])).toEqual([[1, 0, null], 'value']);
  });
  it('is none of another way to the right answer', () => {
    expect(labels(['12 / 2 = 6', '8 / 2 = 4', '6 + 4 = 10', 'A: 10'])).toEqual([[1, 1, 1, 1], undefined]);
  });
  it('is not known of a wrong answer from right values, and of a solution that was cut off', () => {
    expect(labels(['12 + 7 + 1 = 20', 'A: 20'])).toEqual([[null, null], undefined]);
    expect(labels(['12 + 7 + 1 = 20'], true)).toEqual([[null], undefined]);
  });
  it('leaves out notes for calculators and nothing else', () => {
    const { steps } = firstDifference(reference, {
      steps: ['12+7+1=<<12+7+1=20>>20', '\\(20/2 = 10\\)', 'A: 10'],
    });
    expect(steps.map(({ text }) => text)).toEqual(['12+7+1=20', '\\(20/2 = 10\\)', 'A: 10']);
  });
});

const data = new URL('../../../../shared/data/', import.meta.url).pathname;

it.skipIf(!existsSync(data))(
  'agrees with people on ProcessBench as often as docs/evidence says',
  async () => {
    const { problems } = await loadProblems(`${data}gsm8k/test.jsonl`);
    const known = new Map(problems.map((each) => [normalizeProblem(each.problem), each]));
    const rows = JSON.parse(gunzipSync(readFileSync(`${data}processbench/gsm8k.json.gz`)).toString()) as {
      problem: string;
      steps: string[];
      label: number;
    }[];
    const count = { right: 0, rightAsRight: 0, labelledWrong: 0, same: 0, open: 0, missed: 0 };
    for (const { problem, steps, label } of rows) {
      const found = known.get(normalizeProblem(problem));
      if (found?.solution === undefined) throw new Error(`no reference of ${problem}`);
      const record = firstDifference({ ...found, solution: found.solution }, { steps });
      const at = record.steps.findIndex((step) => step.label === 0);
      if (label < 0) {
        count.right++;
        if (at < 0) count.rightAsRight++;
      } else if (at >= 0) {
        count.labelledWrong++;
        if (at === label) count.same++;
      } else if (record.steps.some((step) => step.label === 1)) count.missed++;
      else count.open++;
    }
    expect(count).toEqual({
      right: 193,
      rightAsRight: 191,
      labelledWrong: 151,
      same: 75,
      open: 48,
      missed: 8,
    });
  },
);
