import { describe, expect, test } from 'vitest';
import { isFinished, type LabelRules, relabelled } from '../../src/data/label-rules.js';
import type { Part } from '../../src/data/split.js';
import type { StepLabel, StepRecord } from '../../src/records/record.js';

const RULES: LabelRules = {
  after_error: 'keep',
  held_out_after_error: 'keep',
  outcome: 'none',
  solutions: 'all',
  soft: false,
};
const solution = (
  labels: readonly StepLabel[],
  more: Partial<StepRecord> & { readonly last?: string } = {},
): StepRecord => {
  const { last = 'The answer is 4.', ...rest } = more;
  return {
    problem: 'p',
    steps: labels.map((label, i) => ({
      text: i === labels.length - 1 ? last : `step ${i}`,
      label,
      kind: 'normal',
    })),
    ...rest,
  };
};
const under = (record: StepRecord, rules: Partial<LabelRules>, part: Part = 'train') =>
  relabelled(record, part, { ...RULES, ...rules });
const labelsOf = (found: ReturnType<typeof relabelled>) =>
  typeof found === 'string' ? found : found.steps.map(({ label }) => label);

describe('steps after the first wrong one', () => {
  const record = solution([1, 0, 1, 0]);
  test.each([
    ['keep', [1, 0, 1, 0]],
    ['negative', [1, 0, 0, 0]],
    ['drop', [1, 0, null, null]],
  ] as const)('%s', (after_error, labels) => {
    expect(labelsOf(under(record, { after_error }))).toEqual(labels);
  });

  test('is wrong and no longer neutral under negative', () => {
    const [wrong, neutral] = solution([0, 1]).steps;
    const marked = { ...solution([]), steps: [wrong!, { ...neutral!, neutral: true as const }] };
    const found = under(marked, { after_error: 'negative' }) as StepRecord;
    expect(found.steps[1]).toEqual({ ...neutral, label: 0 });
  });

  test('held-out steps have a rule of their own', () => {
    const rules = { after_error: 'negative', held_out_after_error: 'drop' } as const;
    expect(labelsOf(under(record, rules, 'test'))).toEqual([1, 0, null, null]);
    expect(labelsOf(under(record, rules, 'validation'))).toEqual([1, 0, null, null]);
  });

  test('another version of a step comes after an error that its context has', () => {
    const version = { ...solution([null, null, 1]), context_steps: 2, context_wrong: true as const };
    expect(labelsOf(under(version, { after_error: 'drop' }))).toEqual([null, null, null]);
    expect(labelsOf(under(version, { after_error: 'keep' }))).toEqual([null, null, 1]);
    const outcome = { outcome: 'all_steps_positive', solutions: 'finished' } as const;
    expect(under(version, outcome)).toMatchObject({ outcome: 0 });
  });

  test('a step without a label is no error', () => {
    expect(labelsOf(under(solution([1, null, 1]), { after_error: 'drop' }))).toEqual([1, null, 1]);
  });
});

describe('outcomes', () => {
  const outcomeOf = (record: StepRecord, rules: Partial<LabelRules> = {}) => {
    const found = under(record, { outcome: 'final_answer', solutions: 'finished', ...rules });
    return typeof found === 'string' ? found : found.outcome;
  };

  test('the source knows best, else the final answer is compared with the expected one', () => {
    expect(outcomeOf(solution([1, 1], { outcome: 0, gold_answer: '4' }))).toBe(0);
    expect(outcomeOf(solution([1, 1], { gold_answer: '4' }))).toBe(1);
    expect(outcomeOf(solution([1, 1], { gold_answer: '5' }))).toBe(0);
  });

  test('an answer under a heading is found, as PRM800K writes it', () => {
    const last = 'So it is a half.\n\n# Answer\n\n\\frac{1}{2}';
    expect(outcomeOf(solution([1, 1], { gold_answer: '0.5', last }))).toBe(1);
    expect(outcomeOf(solution([1, 1], { gold_answer: '0.25', last }))).toBe(0);
  });

  test('all_steps_positive goes by the labels alone', () => {
    const rule = { outcome: 'all_steps_positive' } as const;
    expect(outcomeOf(solution([1, null, 1], { outcome: 0 }), rule)).toBe(1);
    expect(outcomeOf(solution([1, 0]), rule)).toBe(0);
    expect(outcomeOf(solution([null, null]), rule)).toBe('no_labelled_step');
  });

  test('unfinished solutions are left out, and those whose answer nobody knows', () => {
    expect(outcomeOf(solution([1, 0], { gold_answer: '4', last: 'so we add 4' }))).toBe('unfinished');
    expect(outcomeOf(solution([1, 1]))).toBe('no_gold_answer');
  });

  test('a model of steps has no outcome, whatever the source says', () => {
    expect(under(solution([1], { outcome: 1 }), {})).not.toHaveProperty('outcome');
  });

  test('solutions: finished leaves the same ones to a model of steps', () => {
    expect(under(solution([1, 0], { last: 'so' }), { solutions: 'finished' })).toBe('unfinished');
    expect(labelsOf(under(solution([1, 0]), { solutions: 'finished' }))).toEqual([1, 0]);
    expect(isFinished(solution([1], { last: '\\boxed{4}' }))).toBe(true);
  });
});

test('soft labels are checked where they are learned, with the row', () => {
  const record: StepRecord = {
    problem: 'p',
    steps: [{ text: 'so', label: 1, score: 1.5, kind: 'normal' }],
    provenance: { file: 'x.jsonl', line: 3, row: 3 },
  };
  expect(labelsOf(under(record, {}))).toEqual([1]);
  expect(() => under(record, { soft: true })).toThrow(/x\.jsonl.*line 3.*score of step "so" is 1\.5/);
});
