// Log-probabilities in the shape of /v1/completions.
import { expect, it } from 'vitest';
import { TextOffsets, textLogprobs } from '../../src/serve/token-logprobs.js';

it('tokens of the same text have the value of the drawn one, else of the more likely', () => {
  // As a SentencePiece model has "A" and the byte <0x41>.
  const texts = ['A', 'A', 'B'];
  const tokenizer = {
    tokenBytes: (token: number) => new TextEncoder().encode(texts[token]),
    isSpecial: () => false,
  };
  const alternatives = [
    { token: 0, logprob: -0.1 },
    { token: 2, logprob: -3 },
    { token: 1, logprob: -9 },
  ];
  const top = (token: number, logprob: number) => {
    const asked = { offsets: new TextOffsets(tokenizer), count: 3, prompt: 0 };
    return textLogprobs([{ token, logprob, alternatives }], (id) => texts[id] as string, asked).top_logprobs;
  };
  expect(top(2, -3)).toEqual([{ A: -0.1, B: -3 }]);
  expect(top(0, -0.1)).toEqual([{ A: -0.1, B: -3 }]);
  expect(top(1, -9)).toEqual([{ A: -9, B: -3 }]);
});
