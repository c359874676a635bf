import { expect, it } from 'vitest';
import type { CandidateRow, SelectionOptions } from '../../../../src/methods/offline/rounds/candidates.js';
import { lazily } from '../../../../src/methods/offline/rounds/judges.js';
import { type LabelControl, labelStage } from '../../../../src/methods/offline/rounds/label.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { scorer } from '../../../../src/scoring/scorer.js';

const problems = [
  { problem: 'p', answer: '7' },
  { problem: 'q', answer: '7' },
];

/** Candidates by problem: `wrong` ones, and right ones whose first step the judge likes (`clean`) or not (`unclean`). */
const candidates = [
  ['clean', 'unclean', 'unclean', 'unclean', 'wrong', 'wrong', 'wrong', 'wrong'],
  ['clean', 'clean', 'unclean', 'unclean'],
];

/** Outcomes of the records of each problem. */
async function outcomes(outcome: 'answer' | 'clean', selection: Omit<SelectionOptions, 'dedupe'>) {
  const rows = candidates.flatMap((own, problem) =>
    own.map((first, sample) => ({
      problem,
      sample,
      text: `${first}\nThe answer is ${first === 'wrong' ? 8 : 7}`,
      tokens: 4,
      finish_reason: 'stop' as const,
    })),
  );
  const made = labelling(rows, outcome, selection).open();
  const step = await made.step(0, new AbortController().signal);
  const records = (step?.rows ?? []) as unknown as StepRecord[];
  return problems.map(({ problem }) =>
    records.filter((row) => row.problem === problem).map(({ outcome }) => outcome),
  );
}

const firstStep = scorer({
  name: 'first step',
  score: async (solutions) => solutions.map(({ steps }) => ({ scores: [steps[0] === 'unclean' ? 0 : 1, 1] })),
});

function labelling(
  rows: readonly CandidateRow[],
  outcome: 'answer' | 'clean' = 'answer',
  selection = { balance_per_problem: false, drop_unanimous: false },
  control: Partial<LabelControl> = {},
  judge = firstStep,
) {
  return labelStage({
    name: 'labels-1',
    source: 'samples-1',
    rows,
    problems,
    judge,
    outcome,
    control: { flip: 0, labels: 'none', seed: 1, ...control },
    selection: { dedupe: false, ...selection },
    maxNewTokens: 8,
    settings: { save_steps: 0, save_total_limit: 1 } as never,
  });
}

it('where steps say what is right, right and wrong are compared by what the judge says', async () => {
  const both = { balance_per_problem: true, drop_unanimous: true };
  expect(await outcomes('clean', both)).toEqual([
    [1, 0],
    [1, 1, 0, 0],
  ]);
  // By answers alone nothing of the second problem can be compared.
  expect(await outcomes('answer', both)).toEqual([[1, 1, 1, 1, 0, 0, 0, 0], []]);
  expect((await outcomes('clean', { balance_per_problem: false, drop_unanimous: false }))[0]).toEqual([
    1, 0, 0, 0, 0, 0, 0, 0,
  ]);
});

it('deals labels out anew as a control, as many right as before, or calls all labelled steps wrong', async () => {
  const rows = Array.from({ length: 40 }, (_, sample) => ({
    problem: 0,
    sample,
    text: `${sample % 4 === 0 ? 'unclean' : 'clean'}\nThe answer is 7`,
    tokens: 4,
    finish_reason: 'stop' as const,
  }));
  const labels = async (control: Partial<LabelControl>) => {
    const step = await labelling(rows, 'answer', undefined, control)
      .open()
      .step(0, new AbortController().signal);
    return (step?.rows ?? [])
      .map((row) => row as unknown as StepRecord)
      .map(({ steps }) => steps.map(({ label }) => label));
  };
  const plain = await labels({});
  expect(plain.filter(([first]) => first === 0).length).toBe(10);
  const dealt = await labels({ labels: 'shuffled' });
  const right = (all: readonly (readonly unknown[])[]) => all.flat().filter((label) => label === 1).length;
  expect(right(dealt)).toBe(right(plain));
  expect(dealt).not.toEqual(plain);
  expect(await labels({ labels: 'shuffled' })).toEqual(dealt);
  expect(await labels({ labels: 'shuffled', seed: 2 })).not.toEqual(dealt);
  const wrong = await labels({ labels: 'wrong' });
  expect(wrong).toEqual(plain.map((own) => own.map((label) => (label === null ? null : 0))));
});

it('gives every labelled step the label of its solution as a control', async () => {
  const rows = ['clean\nThe answer is 7', 'unclean\nThe answer is 7', 'clean\nThe answer is 8'].map(
    (text, sample) => ({
      problem: 0,
      sample,
      text,
      tokens: 4,
      finish_reason: 'stop' as const,
    }),
  );
  const labelsOf = async (labels: LabelControl['labels']) => {
    const step = await labelling(rows, 'answer', undefined, { labels })
      .open()
      .step(0, new AbortController().signal);
    return (step?.rows ?? []).map((row) => (row as unknown as StepRecord).steps.map(({ label }) => label));
  };
  const plain = await labelsOf('none');
  expect(plain.map(([first]) => first)).toEqual([1, 0, 1]);
  const known = (solution: number, label: 0 | 1) =>
    plain[solution]?.map((own) => (own === null ? null : label));
  expect(await labelsOf('outcome')).toEqual([known(0, 1), known(1, 1), known(2, 0)]);
});

it('says how many candidates were cut off and are left out', () => {
  const note = (cut: number, of: number) => {
    const rows = Array.from({ length: of }, (_, sample) => ({
      problem: 0,
      sample,
      text: 'The answer is 7',
      tokens: 4,
      finish_reason: sample < cut ? ('length' as const) : ('stop' as const),
    }));
    return labelling(rows).note;
  };
  expect(note(0, 4)).toBeUndefined();
  expect(note(1, 20)).toBe('1 of 20 candidates was cut off at sampling.max_new_tokens 8 and is left out');
  expect(note(3, 4)).toBe(
    '3 of 4 candidates were cut off at sampling.max_new_tokens 8 and are left out; raise it',
  );
});

it('cuts a chain of thought by the rule of the judge, which may be opened late', async () => {
  const read: (readonly string[])[] = [];
  const ofThoughts = scorer({
    name: 'thoughts',
    segmentation: 'thoughts/1',
    async score(solutions) {
      read.push(...solutions.map(({ steps }) => steps));
      return solutions.map(({ steps }) => ({ scores: steps.map((_, i) => (i === 1 ? 0 : 1)) }));
    },
  });
  const text = '<think>\nFirst,\n\nso 3 + 4\nis 8.\n\nNo: 7.\n</think>\n\nThe answer is 7';
  const row = { problem: 0, sample: 0, text, tokens: 4, finish_reason: 'stop' as const };
  for (const judge of [ofThoughts, lazily(async () => ofThoughts)]) {
    const made = labelling([row], 'answer', undefined, {}, judge).open();
    const step = await made.step(0, new AbortController().signal);
    const [record] = (step?.rows ?? []) as unknown as StepRecord[];
    expect(read.pop()).toEqual(['First,\n\nso 3 + 4\nis 8.', 'No: 7.', 'The answer is 7']);
    expect(record?.steps.map(({ text, label }) => [text, label])).toEqual([
      ['<think>\nFirst,\n\nso 3 + 4\nis 8.\n', 1],
      ['No: 7.\n</think>\n', 0],
      ['The answer is 7', 1],
    ]);
    expect(record?.steps.map((own) => own.text).join('\n')).toBe(text);
  }
});
