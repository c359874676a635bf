import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { solutionsOf } from '../../../src/data/solution-rows.js';
import { verdictSamples } from '../../../src/records/record.js';
import { sharedPath } from '../../shared.js';
import { fileWith, load } from '../data-file.js';

const processbench = ['gsm8k', 'math'].map((name) => sharedPath(`data/processbench/${name}.json.gz`));
describe.skipIf(processbench.includes(undefined))('ProcessBench (needs the shared data)', () => {
  it('labels steps up to the first wrong one, in both subsets', async () => {
    for (const [i, path] of processbench.entries()) {
      const rows = JSON.parse(gunzipSync(readFileSync(path ?? '')).toString()) as {
        id: string;
        label: number;
        steps: string[];
        final_answer_correct: boolean;
      }[];
      expect(rows).toHaveLength([400, 1000][i] ?? 0);
      const { records, report } = await load(path ?? '');
      expect(records).toHaveLength(rows.length);
      for (const [n, record] of records.entries()) {
        const row = rows[n];
        expect(record.provenance?.id).toBe(row?.id);
        expect(record.steps.map((step) => step.text)).toEqual(row?.steps);
        expect(record.steps.findIndex((step) => step.label === 0)).toBe(row?.label);
        expect(record.outcome).toBe(Number(row?.final_answer_correct));
      }
      const after = rows.reduce(
        (sum, { label, steps }) => sum + (label < 0 ? 0 : steps.length - label - 1),
        0,
      );
      expect(Object.fromEntries(report.unlabelled)).toEqual({ after_first_error: after });
    }
  });
});

const shepherd = sharedPath('data/prm800k/math-shepherd-sample.jsonl');
describe.skipIf(shepherd === undefined)('Math-Shepherd (needs the shared data)', () => {
  it('reads problem, steps and marks of the real rows, from which the text can be restored', async () => {
    const { records } = await load(shepherd ?? '');
    expect(records).toHaveLength(7);
    expect(records[0]?.problem).toMatch(/^Janet pays .* in a year\?$/);
    expect(records[0]?.steps.map((step) => step.label)).toEqual([1, 1, 1, 1, 0]);
    expect(records[0]?.steps[0]?.text).toBe(
      'Step 1: Janet spends 3 hours + 5 hours = <<3+5=8>>8 hours per week on music lessons.',
    );
    const inputs = readFileSync(shepherd ?? '', 'utf8')
      .trim()
      .split('\n')
      .map((row) => (JSON.parse(row) as { input: string }).input);
    for (const [i, record] of records.entries()) {
      const text = `${record.problem} ${record.steps.map((step) => `${step.text} ки`).join('\n')}`;
      expect(text.replace(/\s+/g, ' ')).toBe((inputs[i] ?? '').replace(/\s+/g, ' ').trim());
    }
  });

  it('refuses labels that do not match the text', async () => {
    const cases: [object, RegExp][] = [
      [
        { input: 'P Step 1: a ки\nStep 2: b ки', label: 'P Step 1: a +\nStep 2: c -' },
        /does not repeat step 2 of 'input'/,
      ],
      [{ input: 'P Step 1: a ки', label: 'P Step 1: a ?' }, /followed by \+ or -/],
      [{ input: 'P Step 1: a ки', label: 'P Step 1: a + more' }, /column 'label' is longer/],
      [{ input: 'P Step 1: a ки more', label: 'P Step 1: a + more' }, /has text after its last step tag/],
      [{ input: 'P Step 1: a', label: 'P Step 1: a' }, /has no step tag 'ки'/],
      [{ input: 'P a ки', label: 'P a +' }, /has no 'Step 1:' to tell the problem from the steps/],
    ];
    for (const [row, message] of cases) {
      await expect(load(fileWith('rows.jsonl', JSON.stringify(row)))).rejects.toThrow(message);
    }
  });
});

describe('stepwise: texts and a mark for each', () => {
  const labels = [1, 0];
  it.each([
    { prompt: 'P?', completions: ['a', 'b'], labels: [true, false] },
    { problem: 'P?', steps: ['a', 'b'], labels },
    { question: 'P?', steps: ['a', 'b'], labels: ['1', 'false'] },
    { id: 7, question: 'P?', completions: ['a', 'b'], labels, source: 'mine' },
  ])('reads %o', async (row) => {
    const { records } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
    expect(records).toMatchObject([
      {
        problem: 'P?',
        steps: [
          { text: 'a', label: 1 },
          { text: 'b', label: 0 },
        ],
      },
    ]);
  });

  it('leaves a step with null without a label, and counts it', async () => {
    const row = { question: 'P?', steps: ['a', 'b'], labels: [null, 0] };
    const { records, report } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
    expect(records[0]?.steps.map(({ label }) => label)).toEqual([null, 0]);
    expect(Object.fromEntries(report.unlabelled)).toEqual({ null_label: 1 });
  });

  it('keeps a number between 0 and 1 as the score of the step, which is right from the threshold on', async () => {
    const row = { prompt: 'P?', completions: ['a', 'b', 'c', 'd'], labels: [0.75, 0.0, '0.5', 1.0] };
    const file = fileWith('rows.jsonl', JSON.stringify(row));
    const scores = [0.75, undefined, 0.5, undefined];
    for (const [label_threshold, expected] of [
      [undefined, [1, 0, 1, 1]],
      [0.6, [1, 0, 0, 1]],
    ] as const) {
      const { records } = await load(file, label_threshold === undefined ? {} : { label_threshold });
      expect(records[0]?.steps.map(({ label }) => label)).toEqual(expected);
      expect(records[0]?.steps.map(({ score }) => score)).toEqual(scores);
    }
    const bad = fileWith('rows.jsonl', JSON.stringify({ ...row, labels: [0.75, 0, 0.5, 2] }));
    await expect(load(bad)).rejects.toThrow(
      /the label of completion 4 is the number 2; expected true, false/,
    );
  });

  it('reads the problem rather than a prompt beside it, as `score` does, and counts another one', async () => {
    const row = { prompt: 'Which?', problem: 'P?', steps: ['a', 'b'], labels, label: 1 };
    const { records, report } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
    expect(records[0]?.problem).toBe('P?');
    // A label of the whole beside those of steps is no index of ProcessBench.
    expect(records[0]?.steps.map(({ label }) => label)).toEqual([1, 0]);
    expect(Object.fromEntries(report.unasked)).toEqual({ prompt: 1 });
    const alike = await load(fileWith('rows.jsonl', JSON.stringify({ ...row, prompt: 'Solve: P?' })));
    expect(alike.report.unasked.size).toBe(0);
  });

  it('reads those of two lists of steps that the labels fit, and refuses to choose where both do', async () => {
    const row = { problem: 'P?', steps: ['a', 'b'], completions: ['c'], labels };
    const { records } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
    expect(records[0]?.steps.map(({ text }) => text)).toEqual(['a', 'b']);
    await expect(
      load(fileWith('rows.jsonl', JSON.stringify({ ...row, completions: ['a', 'c'] }))),
    ).rejects.toThrow(/columns 'completions' and 'steps' hold different texts/);
  });

  it('refuses completions that each state an answer: samples, under the name of the steps', async () => {
    const samples = ['2 + 3 = 5\n#### 5', 'So it is \\boxed{6}.', 'The answer is 5.'];
    const row = { prompt: 'P?', completions: samples, labels: [1, 0, 1] };
    const read = (own: object) => load(fileWith('rows.jsonl', JSON.stringify(own)));
    await expect(read(row)).rejects.toThrow(
      /each of the 3 texts in column 'completions' states an answer, so that they look like whole solutions/,
    );
    expect(() => solutionsOf(row)).toThrow(/look like whole solutions/);
    expect((await read({ prompt: 'P?', steps: samples, labels: [1, 0, 1] })).records).toHaveLength(1);
    expect((await read({ ...row, completions: ['2 + 3 = 5', ...samples.slice(1)] })).records).toHaveLength(1);
  });

  it('names the column that the row has in what it says of it', async () => {
    const cases: [object, RegExp][] = [
      [{ question: 'P?', steps: ['a'], labels }, /labels: 2, steps: 1; expected a label for each/],
      [{ question: 'P?', steps: ['a', 3], labels }, /step 2 holds the number 3; expected text/],
      [{ question: ' ', steps: ['a', 'b'], labels }, /column 'question' is empty/],
      [{ question: 'P?', steps: [], labels: [] }, /column 'steps' is an empty list/],
    ];
    for (const [row, message] of cases)
      await expect(load(fileWith('rows.jsonl', JSON.stringify(row)))).rejects.toThrow(message);
  });
});

describe('Math-Step-DPO-10K', () => {
  const row = {
    dataset: 'MATH',
    prompt: 'What is 2+3+4?',
    initial_reason_steps: "Let's think step by step.\nStep 1: Add 2 and 3.\n2+3 = 5.\nStep 2:",
    chosen: ' 5+4 = 9.',
    rejected: ' 5+4 = 10.',
    full_chosen: ' 5+4 = 9.\nThe answer is 9.',
    full_rejected: ' 5+4 = 10.\nThe answer is 10.',
    answer: '9',
  };

  it('makes a right and a wrong sample from a pair, with the text of the source', async () => {
    const { records, report } = await load(fileWith('rows.json', JSON.stringify([row])));
    expect(records.map((record) => record.gold_answer)).toEqual(['9', '9']);
    const samples = records.flatMap((record) => [...verdictSamples(record)]);
    expect(samples.map((sample) => sample.label)).toEqual([1, 0]);
    expect(samples.map((sample) => sample.steps.length)).toEqual([2, 2]);
    expect(samples[0]?.steps.join('\n')).toBe(row.initial_reason_steps + row.chosen);
    expect(samples[1]?.steps.join('\n')).toBe(row.initial_reason_steps + row.rejected);
    expect(report.unlabelled.size).toBe(0);
  });

  it('handles the first step and an empty side', async () => {
    const first = { ...row, initial_reason_steps: "Let's think step by step.\nStep 1:", rejected: '' };
    const { records, report } = await load(fileWith('rows.json', JSON.stringify([first])));
    expect(records).toHaveLength(1);
    expect(records[0]?.steps).toEqual([
      { text: "Let's think step by step.\nStep 1: 5+4 = 9.", label: 1, kind: 'normal' },
    ]);
    expect([...report.unlabelled]).toEqual([['empty_rejected', 1]]);
    // A list of steps would be lost without a word.
    const listed = JSON.stringify([{ ...row, initial_reason_steps: ['Step 1: Add.'] }]);
    await expect(load(fileWith('rows.json', listed))).rejects.toThrow(
      "column 'initial_reason_steps' holds a list of 1; expected text or null",
    );
  });
});

describe('our own record', () => {
  it('is read back equal', async () => {
    const record = {
      problem: 'P',
      gold_solution: 'S',
      gold_answer: '4',
      outcome: 0,
      context_steps: 1,
      steps: [
        { text: 'a', label: null, kind: 'normal' },
        { text: 'b', label: 0, score: 0.25, kind: 'wrong' },
        { text: 'c', label: 1, neutral: true, kind: 'improvement' },
      ],
    };
    const { records, report } = await load(fileWith('rows.jsonl', `${JSON.stringify(record)}\n`));
    expect(records).toEqual([{ ...record, provenance: expect.objectContaining({ line: 1 }) as unknown }]);
    expect(report.unlabelled.size).toBe(0);
  });

  it('has a question too, and other columns', async () => {
    const steps = [{ text: 'a', label: 0, error: 'slip' }];
    const { records } = await load(fileWith('rows.jsonl', JSON.stringify({ question: 'Q', id: 5, steps })));
    expect(records).toMatchObject([{ problem: 'Q', steps }]);
    expect(records[0]).not.toHaveProperty('id');
  });

  it('refuses misspelt keys and values out of range', async () => {
    const cases: [object, RegExp][] = [
      [
        { problem: 'P', step: 1, steps: [{ text: 'a', label: 1 }] },
        /the row has the unknown key 'step'; did you mean 'steps'\?/,
      ],
      [
        { problem: 'P', steps: [{ text: 'a', lable: 1 }] },
        /step 1 has the unknown key 'lable'; expected text, label/,
      ],
      [{ problem: 'P', steps: [{ text: 'a', label: 2 }] }, /'label' of step 1 is the number 2; expected/],
      [
        { problem: 'P', steps: [{ text: 'a', neutral: 1 }] },
        /'neutral' of step 1 is the number 1; expected true or false/,
      ],
      [
        { problem: 'P', steps: [{ text: 'a', kind: 'odd' }] },
        /'kind' of step 1 is the text "odd"; expected one of normal/,
      ],
      [
        { problem: 'P', steps: [{ text: 'a', score: 'x' }] },
        /'score' of step 1 is the text "x"; expected a number/,
      ],
      [{ problem: 'P', steps: [] }, /column 'steps' is an empty list/],
      [
        { problem: 'P', steps: [{ text: 'a' }], context_steps: 2 },
        /'context_steps' is the number 2; expected 0 to 1/,
      ],
    ];
    for (const [row, message] of cases) {
      await expect(load(fileWith('rows.jsonl', JSON.stringify(row)))).rejects.toThrow(message);
    }
  });
});

it.each([
  ['positive', [1, 0, 1]],
  ['negative', [0, 0, 1]],
  ['drop', [null, null, 1]],
] as const)('neutral steps of records count as data.neutral says: %s', async (neutral, expected) => {
  const steps = [
    { text: 'a', label: 1, neutral: true },
    { text: 'b', label: 0, neutral: true },
    { text: 'c', label: 1 },
  ];
  const file = fileWith('neutral.jsonl', JSON.stringify({ problem: 'p', steps }));
  const { records, report } = await load(file, { neutral });
  expect(records[0]?.steps.map(({ label }) => label)).toEqual(expected);
  expect(report.unlabelled.get('neutral') ?? 0).toBe(neutral === 'drop' ? 2 : 0);
});
