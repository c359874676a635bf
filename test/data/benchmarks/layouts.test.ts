// Rows of every benchmark's layout, real files where they are there, and rows that no layout fits.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { loadProblems, type ProblemOptions } from '../../../src/data/benchmarks/load.js';
import { sharedPath } from '../../shared.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function file(...rows: readonly unknown[]): string {
  const path = join(folder, 'rows.jsonl');
  writeFileSync(path, rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'));
  return path;
}

const read = (path: string, options?: ProblemOptions) => loadProblems(path, options);

describe('layouts', () => {
  it.each<[string, object, object, string]>([
    [
      'GSM8K',
      { question: 'Two and two?', answer: '2 + 2 = <<2+2=4>>4\n#### 4' },
      { problem: 'Two and two?', answer: '4', solution: '2 + 2 = <<2+2=4>>4\n#### 4' },
      'gsm8k',
    ],
    [
      'MetaMathQA',
      { query: 'Two and two?', response: '2 + 2 = 4.\n#### 4\nThe answer is: 4', type: 'GSM_AnsAug' },
      { problem: 'Two and two?', answer: '4', solution: '2 + 2 = 4.\n#### 4\nThe answer is: 4' },
      'metamath',
    ],
    [
      'AMPS, Khan Academy',
      { problem: 'Two and two?', hints: ['Add them.', 'So the answer is $4$.'] },
      { problem: 'Two and two?', answer: '$4$', solution: 'Add them.\n\nSo the answer is $4$.' },
      'amps',
    ],
    [
      'the Mathematics Dataset on the hub',
      { question: "b'Solve 24 = 6*c for c.\\n'", answer: "b'4\\n'" },
      { problem: 'Solve 24 = 6*c for c.', answer: '4' },
      'deepmind',
    ],
    [
      'the Mathematics Dataset with an apostrophe',
      { question: 'b"What is Tom\'s age?"', answer: "b'it\\'s 4'" },
      { problem: "What is Tom's age?", answer: "it's 4" },
      'deepmind',
    ],
    [
      'MATH',
      {
        problem: 'Half of 1?',
        level: 'Level 1',
        type: 'Algebra',
        solution: 'It is $\\boxed{\\frac{1}{2}}$.',
      },
      { problem: 'Half of 1?', answer: '\\frac{1}{2}', solution: 'It is $\\boxed{\\frac{1}{2}}$.' },
      'math',
    ],
    [
      'MATH-500',
      {
        problem: 'Half of 1?',
        solution: '$\\boxed{1/2}$',
        answer: '\\frac12',
        subject: 'Algebra',
        level: 1,
        unique_id: 'test/algebra/1.json',
      },
      { problem: 'Half of 1?', answer: '\\frac12', solution: '$\\boxed{1/2}$', id: 'test/algebra/1.json' },
      'math',
    ],
    [
      'SVAMP, whose equation is its solution',
      {
        ID: 'chal-2',
        Body: 'Ann has 17 pens, gives 10 away and buys 7.',
        Question: 'How many?',
        Equation: '( ( 17.0 - 10.0 ) + 7.0 )',
        Answer: 14.0,
      },
      {
        problem: 'Ann has 17 pens, gives 10 away and buys 7. How many?',
        answer: '14',
        solution: '(17 - 10) + 7 = 14',
        id: 'chal-2',
      },
      'svamp',
    ],
    [
      'SVAMP with an equation of another number',
      { Body: 'Ann has pens.', Question: 'How many?', Equation: '( ( 4.0 - 2.0 ) + 3.0 )', Answer: 1.0 },
      { problem: 'Ann has pens. How many?', answer: '1' },
      'svamp',
    ],
    [
      'SVAMP',
      {
        ID: 'chal-1',
        Body: 'Ann has 3 pens',
        Question: 'How many?',
        Equation: '3.0',
        Answer: 3.0,
        Type: 'x',
      },
      { problem: 'Ann has 3 pens. How many?', answer: '3', id: 'chal-1' },
      'svamp',
    ],
    [
      'hints beside an answer',
      { problem: 'What is 2 + 3?', answer: '5', hints: ['Count.', 'The answer is near 7'] },
      { problem: 'What is 2 + 3?', answer: '5' },
      'plain',
    ],
    [
      'MGSM, a row of its test part',
      { question: 'Wie viele?', answer: null, answer_number: 6, equation_solution: null },
      { problem: 'Wie viele?', answer: '6' },
      'mgsm',
    ],
    [
      'MGSM, an example with its solution',
      { question: 'Wie viele?', answer: '5 + 6 = 11. Die Antwort ist 11.', answer_number: 11 },
      { problem: 'Wie viele?', answer: '11', solution: '5 + 6 = 11. Die Antwort ist 11.' },
      'mgsm',
    ],
    [
      'AIME 2024',
      { ID: '2024-I-1', Problem: 'Find x.', Solution: 'x is 033.', Answer: '033' },
      { problem: 'Find x.', answer: '033', solution: 'x is 033.', id: '2024-I-1' },
      'aime',
    ],
    [
      'AIME with small letters',
      {
        id: 60,
        problem: 'Find x.',
        solution: 'x is 33.',
        answer: '33',
        url: 'https://example.org',
        year: '2024',
      },
      { problem: 'Find x.', answer: '33', solution: 'x is 33.', id: '60' },
      'plain',
    ],
    [
      'AMC with numbers',
      { id: 0, problem: 'Find x.', answer: 142.0, url: 'https://example.org' },
      { problem: 'Find x.', answer: '142', id: '0' },
      'plain',
    ],
    [
      'AMC with questions',
      { id: 'amc-3', question: 'Find x.', answer: '27.0' },
      { problem: 'Find x.', answer: '27.0', id: 'amc-3' },
      'plain',
    ],
    [
      'a solution that marks its answer',
      { problem: 'One?', solution: 'It is so.\n#### 1' },
      { problem: 'One?', answer: '1', solution: 'It is so.\n#### 1' },
      'plain',
    ],
    [
      'a conversational prompt',
      {
        prompt: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'One?' },
        ],
        answer: '1',
      },
      { problem: 'One?', answer: '1' },
      'plain',
    ],
    [
      'verl',
      {
        prompt: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'One? Answer after ####.' },
        ],
        reward_model: { style: 'rule', ground_truth: '1' },
        extra_info: { question: 'One?', answer: 'It is so.\n#### 1' },
      },
      { problem: 'One?', answer: '1', solution: 'It is so.\n#### 1' },
      'verl',
    ],
    [
      'verl with a list of one answer, as Skywork-OR1 has it',
      { prompt: [{ role: 'user', content: 'Half?' }], reward_model: { ground_truth: '["\\\\frac{1}{2}"]' } },
      { problem: 'Half?', answer: '\\frac{1}{2}' },
      'verl',
    ],
    [
      'verl with a list as Python prints it',
      { prompt: [{ role: 'user', content: 'Half?' }], reward_model: { ground_truth: "['1/2']" } },
      { problem: 'Half?', answer: '1/2' },
      'verl',
    ],
    [
      'a number beside the choices of a server',
      { problem: 'One?', answer: 1, choices: [{ message: { content: '1' } }] },
      { problem: 'One?', answer: '1' },
      'plain',
    ],
    [
      'verl without the question itself',
      { prompt: [{ role: 'user', content: 'One?' }], reward_model: { ground_truth: 1 } },
      { problem: 'One?', answer: '1' },
      'verl',
    ],
    [
      'a record',
      { problem: '12;-6', gold_answer: '6', steps: [] },
      { problem: '12;-6', answer: '6' },
      'record',
    ],
  ])('%s', async (_, row, problem, layout) => {
    const path = file(row);
    const { unasked: _unasked, ...found } = await read(path);
    expect(found).toEqual({ files: [path], layouts: [layout], problems: [problem] });
    expect((await read(path, { layout: layout as 'plain' })).problems).toEqual([problem]);
  });

  it('are those of the columns that are named', async () => {
    const path = file({ task: 'One?', result: 1 }, { task: 'Two?', result: 'so it is \\boxed{2}', id: 7 });
    expect((await read(path, { columns: { problem: 'task', answer: 'result' } })).problems).toEqual([
      { problem: 'One?', answer: '1' },
      { problem: 'Two?', answer: '2', solution: 'so it is \\boxed{2}', id: '7' },
    ]);
  });

  it.each<[string, readonly unknown[], ProblemOptions, string]>([
    [
      'no column that is known',
      [{ text: 'x' }],
      {},
      'line 1: the columns text (the text "x") are of no known layout',
    ],
    ['no rows', [''], {}, 'there is no problem in it'],
    ['no object', ['[1, 2]', ''], {}, 'the row is not an object of columns'],
    ['no JSON', [{ question: 'a', answer: '#### 1' }, '{"question": '], {}, 'line 2: the row is not JSON'],
    [
      'a problem that is a list',
      [{ question: ['a'], answer: '1' }],
      {},
      'line 1: message 1 of column \'question\' is the text "a"; expected an object with role and content (read as plain; the columns are question, answer)',
    ],
    [
      'an answer that is empty',
      [{ question: 'a', answer: ' ' }],
      {},
      "line 1: column 'answer' is empty; expected text (read as plain; the columns are question, answer)",
    ],
    [
      'several answers in a list',
      [{ prompt: [{ role: 'user', content: 'a' }], reward_model: { ground_truth: '["1", "2"]' } }],
      {},
      "'ground_truth' of reward_model is a list of 2 texts; expected one answer",
    ],
    [
      'the place of a choice for an answer',
      [{ question: 'a', choices: ['3', '4'], answer: 1 }],
      {},
      "column 'answer' is the number 1 beside a list of choices, and may be the place of one; write the choices into the problem",
    ],
    [
      'an answer that is none, of NuminaMath 1.5',
      [{ problem: 'Show it.', solution: 'So.', answer: 'proof', question_type: 'proof' }],
      {},
      "column 'answer' says proof, as NuminaMath 1.5 does where there is no answer",
    ],
    [
      'nothing behind ####',
      [{ question: 'a', answer: 'so\n#### ' }],
      {},
      "column 'answer' behind #### is empty; expected the final answer",
    ],
    [
      'a later row without ####',
      [
        { question: 'a', answer: '#### 1' },
        { question: 'b', answer: '2' },
      ],
      {},
      "line 2: column 'answer' has no #### before its final answer (read as gsm8k",
    ],
    [
      'a solution without a box',
      [{ problem: 'a', solution: 'x' }],
      { layout: 'math' },
      "column 'solution' has no \\boxed{…} around its final answer",
    ],
    [
      'an answer that is null',
      [{ problem: 'a', answer: null }],
      { layout: 'plain' },
      "column 'answer' is missing; expected a text or a number",
    ],
    [
      'an answer that is an object',
      [{ problem: 'a', answer: { value: 1 } }],
      {},
      "column 'answer' holds an object; expected a text or a number",
    ],
    [
      'half a character',
      ['{"problem": "a\\ud800", "answer": "1"}'],
      {},
      "column 'problem' holds half of a surrogate pair",
    ],
    [
      'a column that is not there',
      [{ task: 'a', result: 1 }],
      { columns: { problem: 'task', answer: 'results' } },
      "column 'results' is missing",
    ],
  ])('refuse %s', async (_, rows, options, sentence) => {
    await expect(read(file(...rows), options)).rejects.toThrow(sentence);
  });
});

describe.each<[string, number, string]>([
  ['gsm8k/test.jsonl', 1319, 'gsm8k'],
  ['gsm8k/train.jsonl.gz', 7473, 'gsm8k'],
  ['parquet/gsm8k_test.parquet', 1319, 'verl'],
  ['math/math500.jsonl', 500, 'math'],
  ['math/test.jsonl.gz', 5000, 'math'],
  ['svamp/test.jsonl', 1000, 'svamp'],
])('%s', (name, rows, layout) => {
  const path = sharedPath(`data/${name}`);
  it.skipIf(path === undefined)('is read whole', async () => {
    const { layouts, problems } = await read(path as string);
    expect([layouts, problems.length]).toEqual([[layout], rows]);
    expect(problems.every(({ problem, answer }) => problem.trim() !== '' && answer.trim() !== '')).toBe(true);
  });
});
