// How records become what objectives learn from, on the byte tokenizer: one token per character.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../../../src/methods/config.js';
import { offlineData } from '../../../../src/methods/offline/answers/data.js';
import {
  answerPairs,
  judgedAnswers,
  labelledAnswers,
  rightAnswers,
  stepPairs,
} from '../../../../src/methods/offline/answers/kinds.js';
import { scoredPairs } from '../../../../src/methods/offline/full-step-dpo.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { type OfflineItem, offlineSequence } from '../../../../src/scoring/implicit/items.js';
import { answerTokenizer } from '../../../../src/scoring/implicit/tokens.js';
import { loggingTo } from '../../../../src/terminal/log.js';
import { byteTokenizer } from '../../../../src/tokenizer/byte.js';
import { temporaryDirectory } from '../../../weights/temporary-directory.js';

const tokenizer = byteTokenizer();
const tokens = answerTokenizer(tokenizer, '{problem}\n');
const step = (text: string, label: 1 | 0 | null) => ({ text, label, kind: 'normal' as const });
const record = (problem: string, marks: readonly (1 | 0 | null)[], outcome: 1 | 0): StepRecord => ({
  problem,
  steps: marks.map((label, i) => step(`s${i}${label === 0 ? 'x' : ''}`, label)),
  outcome,
});

/** What is learned of each answer. */
const learned = ({ answers }: OfflineItem) =>
  answers.map(({ ids, from }) => tokenizer.decode(ids.slice(from), { skipSpecialTokens: true }));

it('steps are lines after a prompt that is a line, and tile the answer; the end belongs to the last', () => {
  const [item] = labelledAnswers.items([record('p', [1, 0], 0)], tokens);
  const { ids, steps, label } = item!.answers[0]!;
  expect(tokenizer.decode(item!.prompt, { skipSpecialTokens: true })).toBe('p\n');
  expect(learned(item!)).toEqual(['s0\ns1x\n']);
  expect(steps.map(({ begin, end }) => [begin, end])).toEqual([
    [0, 3],
    [3, ids.length],
  ]);
  expect(label).toBe(0);
});

it('a prompt of the source stands word for word, without a line break or a space', () => {
  const row: StepRecord = { problem: 'q', prompt: 'q:', steps: [step('a', null)], outcome: 1 };
  const [item] = labelledAnswers.items([row], tokens);
  expect(tokenizer.decode(item!.prompt, { skipSpecialTokens: true })).toBe('q:');
  expect(learned(item!)).toEqual(['a']);
});

it('a prompt that ends in a word is parted from the answer by a space, unless the answer brings its own', () => {
  const after = answerTokenizer(tokenizer, 'Q: {problem} A:');
  const answerOf = (text: string) => {
    const [item] = labelledAnswers.items([{ problem: 'p', steps: [step(text, 1)], outcome: 1 }], after);
    return learned(item!);
  };
  expect(answerOf('a')).toEqual([' a']);
  expect(answerOf(' a')).toEqual([' a']);
  expect(answerOf('\na')).toEqual(['\na']);
});

it.each([
  ['keep', 'keep', [1, 0, 1]],
  ['mask', 'keep', [1, 0, null]],
  ['negative', 'keep', [1, 0, 0]],
  ['negative', 'exclude', [1, 0, null]],
] as const)(
  'labels after the first error: %s, answer step: %s',
  (after_first_error, answer_step, expected) => {
    const [item] = judgedAnswers({ after_first_error, answer_step }).items(
      [record('p', [1, 0, 1], 0)],
      tokens,
    );
    expect(item!.answers[0]!.steps.map(({ label }) => label)).toEqual(expected);
  },
);

it('right and wrong answers to one problem become pairs in turn, others wait', () => {
  const records = [
    record('a', [1], 1),
    record('b', [1], 1),
    record('a', [1], 1),
    record('a', [0], 0),
    record(' a', [0], 0),
  ];
  const pairs = answerPairs.items(records, tokens);
  expect(pairs.map(learned)).toEqual([
    ['s0\n', 's0x\n'],
    ['s0\n', 's0x\n'],
  ]);
  expect(rightAnswers.items(records, tokens)).toHaveLength(3);
});

it.each([
  ['3² + 1', '32 + 1'],
  ['3½', '31⁄2'],
  ['A if a = 2', 'a if a = 2'],
])('%s and %s are two problems', (one, other) => {
  const records = [record(one, [1], 1), record(other, [0], 0)];
  expect(answerPairs.items(records, tokens)).toEqual([]);
  expect(stepPairs.items(records, tokens)).toEqual([]);
});

it('an answer whose outcome nobody gave is no right one with a wrong step, nor is another version of a step', () => {
  const { outcome: _, ...judged } = record('a', [1, 0], 0);
  const { outcome: __, ...unjudged } = record('b', [1, null], 1);
  const alternative = { ...unjudged, context_steps: 1 };
  expect(rightAnswers.items([judged, unjudged, alternative], tokens)).toHaveLength(1);
  // A right answer stays one, whatever its steps.
  expect(rightAnswers.items([record('c', [0, 1], 1)], tokens)).toHaveLength(1);
});

it('the same text judged right and wrong is no pair, and what nothing is learned from has a reason', () => {
  const same = record('a', [1], 1);
  const twin = { ...record('a', [0], 0), steps: same.steps.map((step) => ({ ...step, label: 0 as const })) };
  const other = record('a', [0], 0);
  const pairs = answerPairs.items([same, twin, other], tokens);
  expect(pairs.map(learned)).toEqual([['s0\n', 's0x\n']]);
  expect(stepPairs.items([same, twin, other], tokens).map(learned)).toEqual([['s0\n', 's0x\n']]);
  const { outcome: _, ...unjudged } = same;
  expect(answerPairs.unused?.({ ...same, rejected: same.steps })).toMatch(
    /chosen answer is the rejected one/,
  );
  expect(answerPairs.items([{ ...same, rejected: same.steps }], tokens)).toEqual([]);
  expect(answerPairs.unused?.(unjudged)).toMatch(/without a label/);
  expect(labelledAnswers.unused?.(unjudged)).toMatch(/without a label/);
  expect(labelledAnswers.unused?.(same)).toBeUndefined();
});

it('a wrong step is no beginning of a pair', () => {
  expect(stepPairs.items([record('a', [0, 1], 0), record('a', [0, 0], 0)], tokens)).toEqual([]);
});

it('a right and a wrong step after the same beginning are learned alone, and nothing ends them', () => {
  const pairs = stepPairs.items([record('a', [1, 1, 1], 1), record('a', [1, 0, 0], 0)], tokens);
  expect(pairs).toHaveLength(1);
  expect(learned(pairs[0]!)).toEqual(['s1\n', 's1x\n']);
  const { answers } = offlineSequence(pairs[0]!, 0);
  expect(answers.map(({ rows }) => tokenizer.decode(rows.map(({ token }) => token)))).toEqual([
    's1\n',
    's1x\n',
  ]);
});

it('rows without a partner are told of, since nothing is learned of them', () => {
  const records = [
    ...[record('a', [1], 1), record('a', [0], 0)],
    ...[record('a', [1], 1), record('b', [1], 1), record('c', [0], 0)],
  ];
  const left = (kind: typeof answerPairs) => {
    const told: [number, string][] = [];
    kind.items(records, tokens, (...of) => told.push(of));
    return told;
  };
  expect(left(answerPairs)).toEqual([
    [3, 'without an answer to the same problem that is labelled otherwise'],
  ]);
  expect(left(stepPairs)).toEqual([
    [3, 'without another that is the same up to a step that is judged otherwise'],
  ]);
});

it('a run says which rows have no partner, and that no step is judged where steps are the lesson', async () => {
  const train = join(temporaryDirectory(), 'rows.jsonl');
  const rows = [
    { problem: 'a', steps: ['1', '2'], outcome: 1 },
    { problem: 'a', steps: ['1', '3'], outcome: 0 },
    { problem: 'b', steps: ['4'], outcome: 1 },
  ].map(({ steps, ...row }) => ({
    ...row,
    steps: steps.map((text) => ({ text, label: null, kind: 'normal' })),
    provenance: { file: 'x', row: 1 },
  }));
  writeFileSync(train, rows.map((row) => JSON.stringify(row)).join('\n'));
  const said = async (kind: Parameters<typeof offlineData>[2]) => {
    const lines: string[] = [];
    const config = completeRunConfig({ method: 'dpo', data: { train, split: [1, 0, 0] } });
    await loggingTo(
      (line, level) => lines.push(`${level}: ${line}`),
      () => offlineData({ data: config.data, question: { template: 'auto' } }, tokenizer, kind),
    );
    return lines.filter((line) => /left out|no step/.test(line));
  };
  expect(await said(answerPairs)).toEqual([
    'info: train: 1 of 3 rows without an answer to the same problem that is labelled otherwise are left out',
  ]);
  expect(await said(judgedAnswers({ after_first_error: 'keep', answer_step: 'keep' }))).toEqual([
    'warning: no step of the training data has a label, so that answers are learned by their outcome alone',
  ]);
  expect(await said(scoredPairs)).toContain(
    'warning: no step of the training data has a score or a label, so that all weigh the same and the method is DPO',
  );
});
