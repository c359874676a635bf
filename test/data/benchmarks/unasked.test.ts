// Parts of a problem's row that nobody is asked are counted, by commands and by runs.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadProblems } from '../../../src/data/benchmarks/load.js';
import { unaskedWarning } from '../../../src/data/benchmarks/unasked.js';
import { loadRecords } from '../../../src/data/load.js';
import { formatLoadReport } from '../../../src/data/summary.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

const user = { role: 'user', content: 'What is 2 + 3?' };
const system = { role: 'system', content: 'Think first.' };
const ROWS = [
  { prompt: [user], answer: '5', tools: [], chat_template_kwargs: '{}' },
  { prompt: [system, user], answer: '5' },
  {
    prompt: [{ ...system, role: 'developer' }, user, { role: 'assistant', content: '5' }, user],
    answer: '5',
  },
  {
    prompt: 'What is 2 + 3?',
    answer: '5',
    tools: '[{"name": "add"}]',
    chat_template_kwargs: { thinking: true },
  },
];
const WARNING =
  'rows have a system message (2), earlier turns (1), tools (1), chat_template_kwargs (1), ' +
  'which is not read: prompts are made of the problem or prompt of a row alone';

function written(rows: readonly object[]): string {
  const file = join(temporaryDirectory(), 'problems.jsonl');
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  return file;
}

it('commands that solve problems say so', async () => {
  expect(unaskedWarning((await loadProblems(written(ROWS))).unasked)).toEqual([WARNING]);
  expect(unaskedWarning((await loadProblems(written(ROWS.slice(0, 1)))).unasked)).toEqual([]);
});

it('what a question needs beside it is named, unless the problem holds it', async () => {
  const asked = { question: 'Which is even: 3 or 4?', answer: 'B' };
  const rows = [
    { ...asked, options: ['3', '4'], table: null },
    { ...asked, options: ['1', '2'], passage: 'Two are odd.' },
    { ...asked, choices: { text: ['3', '5'] }, images: [] },
  ];
  const counts = [
    ['options', 1],
    ['passage', 1],
    ['choices', 1],
  ];
  expect([...((await loadProblems(written(rows))).unasked ?? [])]).toEqual(counts);
  const { records, report } = loadRecords(written(rows));
  for await (const _ of records);
  expect([...report.unasked]).toEqual(counts);
});

it('rows of problems that call their answer wrong, or are not to be used, are counted', async () => {
  const problem = { question: 'What is 2 + 3?', answer: '6' };
  const rows = [
    { ...problem, correct: false },
    { ...problem, is_correct: 0, solution: '2 + 3 = 6' },
    { ...problem, correct: true, solved: false, score: 0, label: 0 },
    { ...problem, status: 'discarded' },
  ];
  const counts = { 'wrong correct': 1, 'wrong is_correct': 1, 'discarded status': 1 };
  const { unasked } = await loadProblems(written(rows));
  expect(Object.fromEntries(unasked ?? [])).toEqual(counts);
  const { records, report } = loadRecords(written(rows), { source: 'problems' });
  for await (const _ of records);
  expect(Object.fromEntries(report.unasked)).toEqual(counts);
  expect(unaskedWarning(new Map([['wrong correct', 1]]))).toEqual([
    'rows call their answer wrong in correct (1), and it is taken as the expected one all the same; ' +
      'name the column of the right answer, or leave such rows out',
  ]);
});

it('the lines of the data of a run say so', async () => {
  const { records, report } = loadRecords(written(ROWS));
  for await (const _ of records);
  expect(formatLoadReport(report)).toContain(`  Warning: ${WARNING}`);
});

it('columns for chat templates are counted in rows of steps, and not where they are read', async () => {
  const asked = { system: 'Be brief.', tools: [{ name: 'add' }], chat_template_kwargs: { thinking: true } };
  const { records, report } = loadRecords(
    written([
      { question: 'What is 2 + 3?', steps: ['5'], labels: [1], ...asked },
      { question: 'What is 2 + 3?', steps: ['5'], labels: [1] },
    ]),
  );
  for await (const _ of records);
  expect([...report.unasked]).toEqual([
    ['system', 1],
    ['tools', 1],
    ['chat_template_kwargs', 1],
  ]);
  const { system, tools } = asked;
  const chat = [
    { from: 'human', value: 'What is 2 + 3?' },
    { from: 'gpt', value: '5' },
  ];
  const read = loadRecords(written([{ conversations: chat, system, tools: JSON.stringify(tools) }]));
  for await (const _ of read.records);
  expect(read.report.unasked).toEqual(new Map());
});

it('pictures beside a conversation are counted', async () => {
  const messages = [
    { role: 'user', content: '<image>Who?' },
    { role: 'assistant', content: 'Tom.' },
  ];
  const { records, report } = loadRecords(written([{ messages, images: ['a.jpg'], videos: [] }]));
  for await (const _ of records);
  expect([...report.unasked]).toEqual([['images', 1]]);
});

it('verdicts that no record has are counted: annotations of Argilla, and marks of wrong solutions', async () => {
  const solution = { problem: 'What is 2 + 3?', solution: '2 + 3 = 6', answer: '6' };
  const answer = { prompt: 'What is 2 + 3?', completion: '6' };
  const countsOf = async (rows: readonly object[]) => {
    const { records, report } = loadRecords(written(rows));
    for await (const _ of records);
    return Object.fromEntries(report.unasked);
  };
  expect(
    await countsOf([
      { ...solution, 'steps.responses': [[{ start: 0, end: 9, label: 'wrong' }]], 'steps.suggestion': null },
      { ...solution, is_correct: false },
      { ...solution, is_correct: true, labels: [1, 0] },
    ]),
  ).toEqual({ 'verdict steps.responses': 1, 'wrong is_correct': 1, 'verdict labels': 1 });
  expect(
    await countsOf([
      { ...answer, 'label.responses': ['wrong'], 'label.suggestion': 'right' },
      { ...answer, correct: 'Incorrect' },
      { ...answer, label: false, correct: false },
      { ...answer, scores: { match: { value: 'I', answer: '6' } } },
      { ...answer, scores: { match: { value: 'C', answer: '6' } }, score: 0.2 },
      { ...answer, reward: -1 },
      { ...answer, success: false },
      { ...answer, score: 0 },
    ]),
  ).toEqual({
    ...{ 'verdict label.responses': 1, 'verdict label.suggestion': 1, 'verdict correct': 1 },
    ...{ 'verdict scores': 1, 'verdict reward': 1, 'verdict success': 1, 'verdict score': 1 },
  });
  // Label Studio's Pairwise, Rating and Ranker.
  const pair = { prompt: 'P', chosen: 'a', rejected: 'b' };
  expect(
    await countsOf([
      { ...pair, better: [{ selected: 'right' }] },
      { ...pair, stars: [{ rating: 1 }], order: [{ ranker: { rank: ['b', 'a'] } }] },
      { ...pair, better: [], seen: [{ selected: 'right', by: 'me' }], notes: [{ note: 'x' }] },
    ]),
  ).toEqual({ 'verdict better': 1, 'verdict stars': 1, 'verdict order': 1 });
  expect(
    await countsOf([
      { problem: 'P', steps: ['a'], labels: [0], correct: false },
      { problem: 'P', steps: ['a'], labels: [1], correct: true },
    ]),
  ).toEqual({});
  expect(
    unaskedWarning(
      new Map([
        ['verdict is_correct', 2],
        ['verdict labels', 1],
      ]),
    ),
  ).toEqual([
    expect.stringMatching(
      /^rows have verdicts in is_correct \(2\), labels \(1\), which are not read, so that wrong/,
    ),
  ]);
});

it('an expected answer in sentences that marks none is counted', async () => {
  const worked = [
    'Er hat 5 und bekommt 2 mal 3. 5 + 6 = 11. Die Antwort ist 11.',
    '最初に5個あり、2缶に3個ずつ入っているので6個増えます。答えは11です。',
  ];
  const rows = [
    ...worked,
    `${worked[0]}\n#### 11`,
    'So 5 + 6 = 11. The answer is 11.',
    'Monday to Friday',
    'She buys 3 more apples',
    '\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}',
  ].map((answer) => ({ question: 'How many?', answer }));
  const said =
    'the expected answers of 2 rows are sentences that mark no answer (####, \\boxed or "answer is"), and are compared word for word, ' +
    'so that hardly a solution is right; name the column of the final answer';
  expect(unaskedWarning((await loadProblems(written(rows))).unasked)).toEqual([said]);
  const loaded = loadRecords(written(rows), { source: 'problems' });
  for await (const _ of loaded.records);
  expect(unaskedWarning(loaded.report.unasked)).toEqual([said]);
});

it('another question beside the one that is read is counted, unless one holds the other', async () => {
  const row = { problem: 'What is 2 + 3?', answer: '5' };
  const rows = [
    { ...row, prompt: 'Solve: What is 2 + 3?' },
    { ...row, question: '2 + 3' },
    { ...row, prompt: 'Write a poem.' },
  ];
  const { unasked } = await loadProblems(written(rows));
  expect(Object.fromEntries(unasked ?? [])).toEqual({ prompt: 1 });
});

it('rows that say that they are not to be used, and weights of rows, are counted', async () => {
  const row = { problem: 'P', steps: ['a'], labels: [1] };
  const { records, report } = loadRecords(
    written([
      { ...row, _status: 'discarded' },
      { ...row, status: 'completed', skipped: false, accepted: true },
      { ...row, was_cancelled: true },
      { ...row, is_valid: false },
      { ...row, status: 'rejected', sample_weight: 0 },
      { ...row, weight: 1, rejected: 'a text' },
    ]),
  );
  for await (const _ of records);
  const texts = loadRecords(
    written([
      { text: '2 + 3 = 6', label: ['incorrect'] },
      { text: 'a review', label: 0 },
    ]),
  );
  for await (const _ of texts.records);
  expect(Object.fromEntries(texts.report.unasked)).toEqual({ 'verdict label': 1 });
  expect(Object.fromEntries(report.unasked)).toEqual({
    'discarded _status': 1,
    'discarded was_cancelled': 1,
    'discarded is_valid': 1,
    'discarded status': 1,
    'weight sample_weight': 1,
  });
  expect(unaskedWarning(report.unasked)).toEqual([
    expect.stringContaining('a weight other than 1 in sample_weight (1)'),
    expect.stringContaining(
      '_status (1), was_cancelled (1), is_valid (1), status (1) that they are not to be used',
    ),
  ]);
});
