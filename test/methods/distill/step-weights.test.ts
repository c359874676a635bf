import { expect, it } from 'vitest';
import { stepWeights, tokenWeights } from '../../../src/methods/distill/step-weights.js';
import { weighing } from '../../../src/methods/distill/weighing.js';
import { scorer } from '../../../src/scoring/scorer.js';
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

it('logs no score of a judge that could read nothing', async () => {
  const told = async (score: number | null) => {
    const judge = scorer({
      name: 'judge',
      scale: 'probability',
      score: async (solutions) =>
        solutions.map(({ steps }) => ({ tokens: 0, scores: steps.map(() => score) })),
    });
    const source = weighing({
      ...{ judge, tokenizer: byteTokenizer() },
      problemOf: () => ({ problem: '1 + 1?', answer: '2' }),
      settings: { right_weight: 1, wrong_weight: 1, after_error_weight: 0 },
    });
    const none = { oldLogprobs: [], refLogprobs: [], values: [], samplerLogprobs: [] };
    const group = { item: 0, answers: [{ ...none, tokens: [50], text: '2', truncated: false }] };
    const found = await source.reward([group], {
      ...{ items: [0], iteration: 0, signal: new AbortController().signal },
    });
    return found?.metrics.judge_score;
  };
  expect(await told(0.5)).toBe(0.5);
  expect(await told(null)).toBeUndefined();
});
