import { expect, it } from 'vitest';
import { stepWeights, tokenWeights } from '../../../src/methods/distill/step-weights.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';

const weights = { right_weight: 1, wrong_weight: 3, after_error_weight: 0.25 };

it('gives verdicts of 0 and 1 one of three weights: before, at and after the first error', () => {
  expect(stepWeights([1, 1, 0, 1, 0], weights)).toEqual([1, 1, 3, 0.25, 0.25]);
});

it('gives probabilities the expected weight, and takes a step without a score as right', () => {
  expect(stepWeights([0.5, null, 0.5], weights)).toEqual([
    0.5 * 1 + 0.5 * 3,
    0.5 * 1 + 0.5 * 0.25,
    0.5 * (0.5 * 1 + 0.5 * 3) + 0.5 * 0.25,
  ]);
});

it('gives each token the weight of its step, a line break that of the step behind it, the end that of the last', () => {
  const tokenizer = byteTokenizer();
  const text = '1+1\n=2';
  const tokens = [...tokenizer.encode(text), tokenizer.eosId as number];
  expect(tokenWeights([5, 7], { text, tokens }, tokenizer)).toEqual([5, 5, 5, 7, 7, 7, 7]);
  expect(tokenWeights([], { text: '', tokens: [1] }, tokenizer)).toEqual([1]);
});
