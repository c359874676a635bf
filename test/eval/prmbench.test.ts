// PRMBench's table: classes of errors, and the means of its subjects.
import { expect, it } from 'vitest';
import { loadRecords } from '../../src/data/load.js';
import { prmScoreLine } from '../../src/eval/prmbench.js';
import { fileWith } from '../data/data-file.js';

/** A group with these scores, in %. */
const scored = (f1_macro: number, f1_pos = 0) =>
  ({ f1_macro: f1_macro / 100, f1_pos: f1_pos / 100 }) as never;

it('has the means that the paper gives for Qwen2.5-Math-PRM-7B', () => {
  const groups = {
    redundency: scored(49),
    circular: scored(55.1),
    counterfactual: scored(71.8),
    step_contradiction: scored(67.3),
    domain_inconsistency: scored(66.3),
    confidence: scored(78.5),
    missing_condition: scored(57.6),
    deception: scored(69.1),
    multi_solutions: scored(49.9, 99.7),
  };
  const all = { f1_macro: 0.655 };
  expect(prmScoreLine(groups, all)).toBe(
    'PRMBench PRM-Score: 65.5; simplicity 52.0, soundness 71.0, sensitivity 75.5',
  );
  const { circular: _, ...without } = groups;
  expect(prmScoreLine(without, all)).toContain('simplicity 49.0 (1 of 2 classes), soundness 71.0');
  expect(prmScoreLine({ level: scored(50) }, all)).toBeUndefined();
  expect(prmScoreLine(undefined, all)).toBeUndefined();
});

it('is broken down by the classes of the file without being asked to', async () => {
  const row = {
    modified_question: '1 + 1?',
    modified_process: ['1 + 1 = 2', '2'],
    error_steps: [2],
    classification: 'circular',
  };
  const file = fileWith('prmbench.jsonl', JSON.stringify(row));
  for await (const { group, steps } of loadRecords(file).records) {
    expect(group).toBe('circular');
    expect(steps.map(({ label }) => label)).toEqual([1, 0]);
  }
});
