// Rows as Parquet and `datasets` hold them, where tools and calls of all rows have the same keys.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { unaskedWarning } from '../../src/data/benchmarks/unasked.js';
import { loadRecords } from '../../src/data/load.js';
import { solutionsOf } from '../../src/data/solution-rows.js';
import { withoutTableNulls } from '../../src/data/table-nulls.js';
import { exactText, parseExact } from '../../src/files/exact-json.js';
import type { StepRecord } from '../../src/records/record.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const text = { type: 'string', description: null, enum: null };
const tool = (properties: object) => ({
  type: 'function',
  strict: null,
  function: { name: 'calc', parameters: { type: 'object', required: null, properties } },
});
const row = (given: object) => ({
  messages: [
    { role: 'user', content: 'a', tool_calls: null },
    {
      role: 'assistant',
      content: '',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'calc', arguments: given } }],
    },
    { role: 'tool', content: '1', tool_calls: null, tool_call_id: 'c' },
    { role: 'assistant', content: 'b' },
  ],
  tools: [
    tool({
      e: { ...text, default: null, enum: ['x', 'y'] },
      f: { type: ['string', 'null'] },
      default: null,
      city: null,
    }),
  ],
  turn_rewards: [1, 0],
});

const clean = {
  type: 'function',
  function: {
    name: 'calc',
    parameters: {
      type: 'object',
      properties: { e: { type: 'string', default: null, enum: ['x', 'y'] }, f: { type: ['string', 'null'] } },
    },
  },
};

it('are read without the nulls of missing keys, which is said', async () => {
  const file = join(temporaryDirectory(), 'rows.jsonl');
  const nulls = row({ e: '1', city: null, n: null });
  writeFileSync(file, `${JSON.stringify(nulls)}\n${JSON.stringify(row({ e: null, f: null }))}\n`);
  const { records, report } = loadRecords(file);
  const found: StepRecord[] = [];
  for await (const record of records) found.push(record);
  expect(found.map(({ tools }) => tools)).toEqual([[clean], [clean]]);
  const calls = found.map(
    ({ steps }) => (steps[0]?.message?.tool_calls as { function: object }[] | undefined)?.[0]?.function,
  );
  expect(calls).toEqual([
    { name: 'calc', arguments: { e: '1' } },
    { name: 'calc', arguments: { f: null } },
  ]);
  expect(unaskedWarning(report.unasked)).toEqual([
    'rows have null for keys of tools (2), null for arguments that their tools do not take (2), as tables of one type write missing ones; they are left out',
  ]);
  const [solution] = solutionsOf(nulls);
  expect(solution?.turns?.tools).toEqual([clean]);
});

it('keep numbers as they are written, and rows without such nulls as they are', () => {
  const given = parseExact(
    '{"tools":[{"name":"f","parameters":{"properties":{"x":{"default":2.0,"enum":null}}}}]}',
  );
  expect(exactText(withoutTableNulls(given as never, () => {}))).toBe(
    '{"tools":[{"name":"f","parameters":{"properties":{"x":{"default":2.0}}}}]}',
  );
  const notes: string[] = [];
  const whole = { ...row({ e: '1', n: null }), tools: [{ name: 'calc', parameters: { type: 'object' } }] };
  expect(withoutTableNulls(whole as never, (part) => notes.push(part))).toEqual(whole);
  expect(notes).toEqual([]);
});
