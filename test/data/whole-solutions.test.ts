// Data sets of problems with worked solutions, as each method needs them: by their columns, without being named.
import { describe, expect, it } from 'vitest';
import { solutionsOf } from '../../src/data/solution-rows.js';
import { allAnswers, labelledAnswers, rightAnswers } from '../../src/methods/offline/answers/kinds.js';
import type { StepRecord } from '../../src/records/record.js';
import { answerTokenizer } from '../../src/scoring/implicit/tokens.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { fileWith, load } from './data-file.js';

const rows = {
  gsm8k: { question: 'Q?', answer: '1 + 1 = <<1+1=2>>2\n2 + 1 = 3\n#### 3' },
  math: { problem: 'P?', solution: 'It is $1+1$.\nSo $\\boxed{2}$.', level: 'Level 1', type: 'Algebra' },
  metamath: { query: 'M?', response: 'First 1.\nThe answer is: 1', type: 'GSM_Rephrased' },
  svamp: { ID: 'chal-1', Body: 'There are 2 cats', Question: 'How many cats?', Answer: '2.0', Equation: '2' },
};

const read = async (row: object) =>
  (await load(fileWith('rows.jsonl', JSON.stringify(row)))).records as [StepRecord];

describe('without data.source', () => {
  it.each([
    ['gsm8k', 'Q?', '3', 3],
    ['math', 'P?', '2', 2],
    ['metamath', 'M?', '1', 2],
    ['svamp', 'There are 2 cats. How many cats?', '2.0', 0],
  ] as const)(
    '%s has its problem, its answer and the steps of its solution',
    async (name, problem, answer, steps) => {
      const [record] = await read(rows[name]);
      expect(record).toMatchObject({ problem, gold_answer: answer });
      expect(record.steps).toHaveLength(steps);
      expect(record.steps.every(({ label }) => label === 1)).toBe(true);
    },
  );

  it('solutions are learned where they are there; a method that needs labels finds none', async () => {
    const tokens = answerTokenizer(byteTokenizer(), '{problem}\n');
    for (const kind of [allAnswers, rightAnswers]) {
      const learned = async (row: object) => kind.items(await read(row), tokens).length;
      for (const name of ['gsm8k', 'math', 'metamath'] as const) expect(await learned(rows[name])).toBe(1);
      expect(await learned(rows.svamp)).toBe(0);
      expect(kind.unused!((await read(rows.svamp))[0])).toBe('without a worked solution');
    }
    expect(labelledAnswers.items(await read(rows.gsm8k), tokens)).toEqual([]);
  });

  it('judges of steps refuse them, and say why', async () => {
    const file = fileWith('rows.jsonl', JSON.stringify(rows.gsm8k));
    await expect(load(file, { problems: false })).rejects.toThrow(
      /line 1: these are problems with their answers \(gsm8k\), whose steps nobody judged, and labels of steps are needed; data.source problems/,
    );
    expect((await load(file, { problems: false, source: 'problems' })).records).toHaveLength(1);
  });

  it('a solution that marks no answer is one to learn, without an answer', async () => {
    const [record] = await read({ problem: 'P?', solution: 'It is clear.\nDone.', level: 'Level 1' });
    expect(record).not.toHaveProperty('gold_answer');
    expect(record.steps.map(({ text }) => text)).toEqual(['It is clear.', 'Done.']);
  });

  it('labelled layouts go first', async () => {
    const [record] = await read({ problem: 'P?', answer: '1', steps: ['a'], labels: [0] });
    expect(record.steps).toMatchObject([{ label: 0 }]);
  });
});

describe('solutions to score', () => {
  it('are those of Math-Shepherd, with its labels', () => {
    const input = 'Tom has 2. How many? Step 1: It is 2. ки\nStep 2: The answer is: 3 ки';
    const label = 'Tom has 2. How many? Step 1: It is 2. +\nStep 2: The answer is: 3 -';
    expect(solutionsOf({ input, label, task: 'GSM8K' })).toEqual([
      {
        problem: 'Tom has 2. How many?',
        steps: ['Step 1: It is 2.', 'Step 2: The answer is: 3'],
        answer: undefined,
        cutOff: false,
        labels: [1, 0],
      },
    ]);
  });

  it('are those of PRMBench; columns that are named stay what they are', () => {
    const row = {
      modified_question: 'Q?',
      modified_process: ['a', 'b'],
      error_steps: [2],
      idx: 'x',
    };
    expect(solutionsOf(row)).toMatchObject([{ problem: 'Q?', steps: ['a', 'b'], labels: [1, 0] }]);
    const columns = { problem: 'modified_question', solution: 'modified_process' };
    expect(solutionsOf(row, columns)[0]).not.toHaveProperty('labels');
    expect(() => solutionsOf({ input: 'a' })).toThrow(/there is no column of a problem/);
  });
});
