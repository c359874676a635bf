import { expect, test } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { rewardUnits } from '../../../src/methods/stepamc/reward/pairs.js';
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
    made('P ', ['a', 1], ['c', 1]),
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
