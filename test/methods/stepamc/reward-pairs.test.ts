import { expect, test } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { reasonedUnit, rewardUnits } from '../../../src/methods/stepamc/reward/pairs.js';
import { unitsOfQuestions } from '../../../src/methods/stepamc/reward/reasons.js';
import type { Question } from '../../../src/methods/stepamc/rollout.js';
import type { StepAmcRun } from '../../../src/methods/stepamc/run.js';
import type { StepLabel } from '../../../src/records/record.js';
import { rewardSequence } from '../../../src/scoring/reward-network/scores.js';
import { verdictSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';

const tokenizer = verdictTokenizer({ template: 'compact' }, byteTokenizer());
const made = (problem: string, ...steps: readonly (readonly [string, StepLabel])[]) => {
  const record = { problem, steps: steps.map(([text, label]) => ({ text, label, kind: 'normal' as const })) };
  return { problem, sequence: verdictSequence(tokenizer.solution(record), tokenizer, 0) };
};

function units(mode: 'label' | 'step', ...items: readonly ReturnType<typeof made>[]) {
  const sequences = items.map(({ sequence }) => sequence);
  const rewards = sequences.map((sequence) => rewardSequence(sequence, tokenizer, mode));
  return rewardUnits(
    inMemory(sequences),
    rewards,
    items.map(({ problem }) => problem),
    mode,
  );
}

test('label: each labelled step pairs its right verdict with the wrong one', () => {
  const [unit] = units('label', made('p', ['a', 1], ['b', 0], ['c', null], ['d', 1]));
  const [sequence] = unit!.sequences;
  const { positive, negative } = sequence!;
  expect(unit!.pairs).toEqual([
    { chosen: [0, positive[0]], rejected: [0, negative[0]] },
    { chosen: [0, negative[1]], rejected: [0, positive[1]] },
    { chosen: [0, positive[2]], rejected: [0, negative[2]] },
  ]);
  // Each word has a row of its own.
  const word = (row: number | undefined) => String.fromCharCode(sequence!.ids[row!]!);
  expect([word(positive[0]), word(negative[0])]).toEqual(['+', '-']);
});

test('step: a wrong step is paired with the right ones after the same steps, else with the nearest of the problem', () => {
  const found = units(
    'step',
    made('p', ['a', 1], ['b', 0]),
    made('p ', ['a', 1], ['c', 1]),
    made('q', ['x', 1], ['y', 1], ['z', 0]),
    made('r', ['only right', 1]),
  );
  expect(found.map(({ pairs }) => pairs.length)).toEqual([1, 1, 0]);
  const [p, q, r] = found;
  // b after a against c after a, which is in the other solution of the problem.
  expect(p!.pairs[0]!.rejected[0]).not.toBe(p!.pairs[0]!.chosen[0]);
  // No right step follows x y, so y is the nearest to z.
  const rows = q!.sequences[0]!.positive;
  expect(q!.pairs).toEqual([{ chosen: [0, rows[1]], rejected: [0, rows[2]] }]);
  expect(r!.sequences).toEqual([]);
});

test('step: steps of problems that differ in a raised number are no pair', () => {
  const found = units('step', made('3²', ['a', 0]), made('32', ['b', 1]));
  expect(found.map(({ pairs }) => pairs.length)).toEqual([0, 0]);
});

test('label, after reasons: each word follows its reason, and a reason that did not end gives no pair', () => {
  const { sequence } = made('p', ['a', 1], ['b', 0], ['c', 0]);
  const encode = (text: string) => [...byteTokenizer().encode(text)];
  const reasons = [encode('why\n'), undefined, encode('no\n')];
  const reward = rewardSequence(sequence, tokenizer, 'label', reasons);
  const { pairs } = reasonedUnit(sequence, reward, reasons);
  const { positive, negative } = reward;
  expect(pairs).toEqual([
    { chosen: [0, positive[0]], rejected: [0, negative[0]] },
    { chosen: [0, negative[2]], rejected: [0, positive[2]] },
  ]);
  // What the branch of a word reads: the trunk before its place, and its own tokens up to the row.
  const readBy = (row: number) => {
    const own = reward.branch?.[row];
    const seen = reward.ids.filter((_, i) => i <= row && reward.branch?.[i] === own);
    return String.fromCharCode(...seen);
  };
  expect([readBy(positive[0] as number), readBy(negative[2] as number)]).toEqual(['?why\n+', '?no\n-']);
});

test('the units of a rollout read the reasons of its answers, by place', () => {
  const { sequence } = made('p', ['a', 1], ['b', 0]);
  const answer = (text: string, reason: number | undefined) => ({
    tokens: [...byteTokenizer().encode(text)],
    ...(reason === undefined ? {} : { reason }),
  });
  const asked = (place: number, item: number, found: ReturnType<typeof answer>) => ({
    place,
    item,
    answers: [found],
  });
  const open = { data: { sequences: { train: inMemory([sequence, sequence]) }, tokenizer } };
  const units = unitsOfQuestions(open as unknown as StepAmcRun)([1], [
    asked(1, 1, answer('so\n-', 3)),
    asked(0, 1, answer('on and on', undefined)),
  ] as unknown as Question[]);
  const text = String.fromCharCode(...(units[0]?.sequences[0]?.ids ?? []));
  expect(units.map(({ pairs }) => pairs.length)).toEqual([1]);
  expect(text).toContain('so\n');
  expect(text).not.toContain('on and on');
});
