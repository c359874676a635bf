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
  'which is not read: the problem alone goes into the template of prompts';

function written(rows: readonly object[]): string {
  const file = join(temporaryDirectory(), 'problems.jsonl');
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  return file;
}

it('commands that solve problems say so', async () => {
  expect(unaskedWarning((await loadProblems(written(ROWS))).unasked)).toEqual([WARNING]);
  expect(unaskedWarning((await loadProblems(written(ROWS.slice(0, 1)))).unasked)).toEqual([]);
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
