import { expect, it } from 'vitest';
import {
  isRight,
  labelledRecord,
  selectCandidates,
} from '../../../../src/methods/offline/rounds/candidates.js';
import { roundProblems } from '../../../../src/methods/offline/rounds/sample.js';
import { nothingToLearn } from '../../../../src/methods/offline/rounds/stages.js';
import { stepPieces, stepsOf } from '../../../../src/records/steps.js';

it.each([
  ['lines', 'a = 1\nb = 2\nAnswer: 2\n'],
  ['paragraphs', 'First.\n\nSecond\nof two lines.\n\nThird.'],
  ['blank lines at odd places', '\n\nFirst.\n\n\nSecond.\n\n'],
  ['spaces', ' a\n  b '],
  ['one step', 'only'],
  ['formulas over lines', 'So\n\\[\na = 1\n\\]\nand\n  $b\n= 2$\n'],
  ['formulas over paragraphs', '\n\\begin{align*}\na\n\nb\n\\end{align*}\n\nThe end.\n'],
  ['nothing', ' \n '],
])('the pieces of %s are the steps that judges see, and together the text', (_, text) => {
  const pieces = stepPieces(text);
  expect(pieces.map((piece) => piece.trim())).toEqual(stepsOf(text));
  if (pieces.length > 0) expect(pieces.join('\n')).toBe(text.trimEnd());
});

const candidate = (text: string, right: boolean, finish_reason: 'stop' | 'length' = 'stop') => ({
  problem: 3,
  sample: 0,
  text,
  tokens: 5,
  finish_reason,
  right,
});
const all = { dedupe: true, balance_per_problem: false, drop_unanimous: false };

it('leaves out what was cut off, what is empty and what is there already, and counts it', () => {
  const given = [
    candidate('a', true),
    candidate('a', true),
    candidate(' ', false),
    candidate('b', false, 'length'),
  ];
  const { kept, left } = selectCandidates(given, all);
  expect(kept.map(({ text }) => text)).toEqual(['a']);
  expect(left).toEqual({ duplicate: 1, empty: 1, cut_off: 1, unbalanced: 0, unanimous: 0 });
  expect(selectCandidates(given, { ...all, dedupe: false }).kept).toHaveLength(2);
});

it('no answer is right of a solution that was cut off or never ends its reasoning, whatever number it holds', () => {
  const problem = { problem: '3 + 4?', answer: '7' };
  expect(isRight(problem, candidate('The answer is 7', false))).toBe(true);
  expect(isRight(problem, candidate('The answer is 7', false, 'length'))).toBe(false);
  const asked = { ...problem, opened: '<think>' };
  expect(isRight(asked, candidate('The answer is 7', false))).toBe(false);
  expect(isRight(asked, candidate('8?</think>The answer is 7', false))).toBe(true);
});

it('balances right and wrong candidates, or drops a problem that has one kind alone', () => {
  const given = [candidate('a', true), candidate('b', true), candidate('c', false)];
  const balanced = selectCandidates(given, { ...all, balance_per_problem: true });
  expect(balanced.kept.map(({ text }) => text)).toEqual(['a', 'c']);
  expect(balanced.left.unbalanced).toBe(1);
  expect(selectCandidates(given, { ...all, drop_unanimous: true }).kept).toHaveLength(3);
  expect(selectCandidates(given.slice(0, 2), { ...all, drop_unanimous: true }).left.unanimous).toBe(2);
});

it('a labelled candidate is a record; a judge with another number of labels is refused', () => {
  const problem = { problem: 'p', answer: '2', solution: 's' };
  expect(labelledRecord(problem, candidate('a\nb', false), [1, null], 'samples-1')).toMatchObject({
    gold_answer: '2',
    steps: [
      { text: 'a', label: 1 },
      { text: 'b', label: null },
    ],
    outcome: 0,
    provenance: { file: 'samples-1', row: 4 },
  });
  expect(() => labelledRecord(problem, candidate('a', true), [], 'x')).toThrow(
    /the judge gave 0 labels for 1 steps/,
  );
});

it('fresh rounds take the next problems of one order, others the same', () => {
  const of = (iteration: number, fresh: boolean) => roundProblems(10, { iteration, size: 4, fresh, seed: 1 });
  expect(new Set([...of(1, true), ...of(2, true)]).size).toBe(8);
  expect(of(1, false)).toEqual(of(2, false));
  expect(
    roundProblems(10, { iteration: 1, size: 'all', fresh: true, seed: 1 }).sort((a, b) => a - b),
  ).toEqual(Array.from({ length: 10 }, (_, i) => i));
});

it('a round without anything to learn says how many candidates were cut off', () => {
  const of = (...reasons: ('stop' | 'length')[]) =>
    nothingToLearn(
      reasons.map((finish_reason) => ({ finish_reason })),
      { round: 1, what: 'labelled answers', max_new_tokens: 96, where: 'labels-1.jsonl' },
    ).message;
  expect(of('length', 'length')).toBe(
    'round 1 has nothing to learn from: all 2 candidates were cut off at sampling.max_new_tokens 96; raise it',
  );
  expect(of('stop', 'length', 'stop')).toMatch(
    /^round 1 has no labelled answers to learn from: of 3 candidates 1 were cut off at sampling.max_new_tokens 96; see labels-1.jsonl/,
  );
});
