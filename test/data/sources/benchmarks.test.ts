// Benchmarks of step judges, as rows in their documented layouts.
import { describe, expect, it } from 'vitest';
import { unaskedWarning } from '../../../src/data/benchmarks/unasked.js';
import { recordsOf } from '../../../src/data/load.js';
import { loggingTo } from '../../../src/terminal/log.js';
import { fileWith, load } from '../data-file.js';

const labelsOf = async (row: object) => {
  const { records, report } = await load(fileWith('rows.jsonl', `${JSON.stringify(row)}\n`));
  return {
    record: records[0],
    labels: records[0]?.steps.map(({ label }) => label),
    unlabelled: Object.fromEntries(report.unlabelled),
  };
};

describe('PRMBench', () => {
  const row = {
    original_question: 'A pencil costs 20 cents. What do 3 cost?',
    modified_question: 'A pencil costs 20 cents. What do 3 cost?',
    original_process: ['1. One costs 20.', '2. Three cost 60.'],
    modified_process: ['1. One costs 20.', '2. Three cost 20 + 3.', '3. That is 23.', '4. So 60.'],
    modified_steps: [2, 3],
    error_steps: [2, 3],
    reason: 'added in place of multiplied',
    idx: 'circular_1',
    classification: 'circular',
  };

  it('labels the modified process: wrong where named, from 1 on, right elsewhere', async () => {
    const { record, labels } = await labelsOf(row);
    expect(labels).toEqual([1, 0, 0, 1]);
    expect(record?.problem).toBe(row.modified_question);
    expect(record?.provenance?.id).toBe('circular_1');
  });

  it.each([[[0]], [[5]], [['2']]])('refuses error_steps %j', async (error_steps) => {
    await expect(labelsOf({ ...row, error_steps })).rejects.toThrow(/error_steps.*from 1 to 4/);
  });
});

describe('BIG-Bench Mistake', () => {
  const row = {
    input: 'Sort: b a',
    steps: ['Look at b.', 'b is before a.', 'b a'],
    answer: 'b a',
    target: 'a b',
  };

  it('labels up to the first mistake, and compares answer and target', async () => {
    const { record, labels, unlabelled } = await labelsOf({ ...row, mistake_index: 1 });
    expect(labels).toEqual([1, 0, null]);
    expect([record?.outcome, record?.gold_answer]).toEqual([0, 'a b']);
    expect(unlabelled).toEqual({ after_first_error: 1 });
    expect((await labelsOf({ ...row, mistake_index: null })).labels).toEqual([1, 1, 1]);
  });

  it('refuses an index beyond the steps', async () => {
    await expect(labelsOf({ ...row, mistake_index: 3 })).rejects.toThrow(/mistake_index.*0 to 2/);
  });
});

describe('ProcessBench', () => {
  const warningsOf = async (labels: readonly unknown[], options = {}) => {
    const rows = labels.map((label) => JSON.stringify({ problem: 'P?', steps: ['a', 'b'], label }));
    const { report } = await load(fileWith('rows.jsonl', rows.join('\n')), options);
    return unaskedWarning(report.unasked);
  };

  it('is doubted where every label is 0 or 1, as marks of whole solutions are', async () => {
    const expected = [
      'in all 3 rows label is 0 or 1, which counts as the index of the first wrong step, so that no solution is right; ' +
        'if 1 calls a solution right, write it as outcome of records (docs/reference/data.md)',
    ];
    expect(await warningsOf([0, 1, 1])).toEqual(expected);
    expect(await warningsOf(['0', '1', '1'])).toEqual(expected);
    for (const labels of [
      [-1, 0, 1],
      [0, 0],
      [1, 1],
    ])
      expect(await warningsOf(labels)).toEqual([]);
    expect(await warningsOf([0, 1], { source: 'processbench' })).toEqual([]);
    const lines: string[] = [];
    const rows = [0, 1, 1].map((label) => ({ problem: 'P?', steps: ['a', 'b'], label }));
    await loggingTo(
      (line) => lines.push(line),
      () => recordsOf('rows', rows),
    );
    expect(lines).toEqual([`rows: ${expected[0]}`]);
  });
});
