import { expect, test } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { agreedLabel, pseudoLabelled } from '../../../src/methods/stepamc/pseudo-labels.js';
import type { StepLabel } from '../../../src/records/record.js';
import { verdictSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';

test('a pseudo-label is what all judges say, with the probability of the least certain one', () => {
  expect(agreedLabel([0.9], 0.5)).toEqual({ label: 1, probability: 0.9 });
  expect(agreedLabel([0.25], 0.5)).toEqual({ label: 0, probability: 0.75 });
  expect(agreedLabel([0.9, 0.6], 0.5)).toEqual({ label: 1, probability: 0.6 });
  expect(agreedLabel([0.25, 0], 0.5)).toEqual({ label: 0, probability: 0.75 });
  expect(agreedLabel([0.9, 0.4], 0.5)).toBeUndefined();
  expect(agreedLabel([0.9, 0.6], 0.7)).toBeUndefined();
  // Neither word is more probable.
  expect(agreedLabel([0.5], 0.5)).toBeUndefined();
});

test('pseudo-labels are weighed and smoothed as labels are, and counted with them', () => {
  const tokenizer = verdictTokenizer({ template: 'compact' }, byteTokenizer());
  const sequences = ([[1, null, 0], [1], [null]] as StepLabel[][]).map((labels, i) => {
    const steps = labels.map((label, s) => ({ text: `step ${s}`, label, kind: 'normal' as const }));
    return verdictSequence(tokenizer.solution({ problem: 'p', steps }, { steps: 'all' }), tokenizer, i);
  });
  const made = [
    { item: 0, place: 1, label: 1, probability: 0.9 },
    { item: 2, place: 0, label: 1, probability: 0.9 },
  ] as const;
  const found = pseudoLabelled(inMemory(sequences), made, {
    labels: { n: 3, positive: 2, negative: 1 },
    tokenizer,
    sft: { class_weight: 'balanced', label_smoothing: 0.2 },
  });
  // Four of five are right.
  const [right, wrong] = [5 / 8, 5 / 2];
  const weights = (weight: number) => [expect.closeTo(0.8 * weight, 12), expect.closeTo(0.2 * weight, 12)];
  expect(Array.from(found, ({ targets }) => targets.map(({ weight }) => weight))).toEqual([
    [...weights(right), ...weights(right), ...weights(wrong)],
    weights(right),
    weights(right),
  ]);
  expect(Array.from(found, ({ verdicts }) => verdicts.map(({ label }) => label))).toEqual([
    [1, 1, 0],
    [1],
    [1],
  ]);
});
