// The options of a request: defaults, and one sentence for each mistake.
import { expect, it } from 'vitest';
import { type SamplingOptions, samplingSettings } from '../../src/generate/options.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';

const limits = { vocabSize: 320, eosTokenIds: [2, 7] };
const settings = (options: SamplingOptions, prompts = 2) => samplingSettings(options, limits, prompts);

it('by default one sample is drawn from the whole distribution', () => {
  expect(settings({})).toEqual({
    n: 1,
    maxNewTokens: 256,
    minTokens: 0,
    temperature: 1,
    topK: 0,
    topP: 1,
    minP: 0,
    penalties: undefined,
    topLogprobs: 0,
    promptLogprobs: false,
    promptTopLogprobs: 0,
    logitBias: [],
    choices: undefined,
    choicesOnly: true,
    stopTokens: new Set([2, 7]),
    lateTokens: new Set([2, 7]),
    stopStrings: [],
    seed: 0,
    iteration: 0,
    promptIds: [0, 1],
    tokenizer: undefined,
  });
});

it('stop ids and stop texts are separated, and the end-of-text token can be ignored', () => {
  const tokenizer = byteTokenizer();
  const { stopTokens, stopStrings } = settings({ stop: [9, '\n\n', 11], ignoreEos: true, tokenizer });
  expect([stopTokens, stopStrings]).toEqual([new Set([9, 11]), ['\n\n']]);
});

it.each<[SamplingOptions, string]>([
  [{ n: 0 }, 'n: expected a whole number from 1 to 65536, found 0'],
  [{ maxNewTokens: 1.5 }, 'maxNewTokens: expected a whole number of at least 1, found 1.5'],
  [{ minTokens: 9, maxNewTokens: 8 }, 'minTokens: expected a whole number from 0 to 8, found 9'],
  [{ temperature: -1 }, 'temperature: expected a number from 0 to 1000000, found -1'],
  [{ temperature: Number.NaN }, 'temperature: expected a number from 0 to 1000000, found NaN'],
  [{ temperature: 1e39 }, 'temperature: expected a number from 0 to 1000000, found 1e+39'],
  [
    { temperature: 1e-6 },
    'temperature: expected 0, which takes the most likely token, or at least 0.01, found 0.000001',
  ],
  [{ topK: -1 }, 'topK: expected a whole number of at least 0, found -1'],
  // 32 bits, in which the op reads it, have no such number.
  [{ topP: 1e-50 }, 'topP: expected a number above 0, at most 1, found 1e-50'],
  [{ topP: 0 }, 'topP: expected a number above 0, at most 1, found 0'],
  [{ topP: 1.1 }, 'topP: expected a number above 0, at most 1, found 1.1'],
  [{ minP: 2 }, 'minP: expected a number from 0 to 1, found 2'],
  [{ topLogprobs: 321 }, 'topLogprobs: expected a whole number from 0 to 320, found 321'],
  [{ presencePenalty: 2.5 }, 'presencePenalty: expected a number from -2 to 2, found 2.5'],
  [{ repetitionPenalty: 0 }, 'repetitionPenalty: expected a number from 0.01 to 100, found 0'],
  [{ promptTopLogprobs: -1 }, 'promptTopLogprobs: expected a whole number from 0 to 320, found -1'],
  [{ stop: 'end' as never }, 'stop: expected a list, found "end"'],
  [{ choices: [1 as never] }, 'choices: expected lists of token ids, found 1'],
  [{ seed: -1 }, 'seed: expected a whole number of at least 0, found -1'],
  [{ stop: [320] }, 'stop: expected token ids from 0 to 319, found 320'],
  [{ stop: ['end'] }, 'stop: expected token ids, or a tokenizer beside texts, found "end"'],
  [{ stop: [''], tokenizer: byteTokenizer() }, 'stop: expected texts that are not empty, found ""'],
  [
    { stop: ['a', 'b\ud83d'], tokenizer: byteTokenizer() },
    'stop: expected texts without half of a surrogate pair, which no sample has, found "b\\ud83d"',
  ],
  [{ logitBias: { 400: 1 } }, 'logitBias: expected token ids from 0 to 319, found 400'],
  [
    { logitBias: { 4: Number.POSITIVE_INFINITY } },
    'logitBias of token 4: expected a number below 3.4e38 or −Infinity, found Infinity',
  ],
  [{ promptIds: [1] }, 'promptIds: expected a number for each of the 2 prompts, found 1'],
  [{ choices: [] }, 'choices: expected at least one answer, found none'],
  [{ choices: [[1], []] }, 'choices: answer 1 has no token'],
  [{ choices: [[1], [2, 3], [1]] }, 'choices: answers 0 and 2 are the same'],
  [
    {
      choices: [
        [1, 2, 3],
        [1, 2],
      ],
    },
    'choices: answer 1 is the beginning of answer 0; end both with a token',
  ],
  [
    { choices: [[1, 2, 3]], maxNewTokens: 2 },
    'choices: expected answers of at most maxNewTokens 2, found 3 tokens in answer 0',
  ],
  [{ choices: [[5, 1], [2]], stop: [5] }, 'choices: expected tokens that end a text at the end of an answer'],
  [
    { choices: [[1, 5]], stop: [5], minTokens: 2 },
    'minTokens: expected at most 1, before the end of answer 0 of choices, found 2',
  ],
  [
    { choices: [[1, 5]], logitBias: { 1: Number.NEGATIVE_INFINITY } },
    'choices: expected tokens that logitBias does not ban; leave the answer out, found 1 in answer 0',
  ],
  [{ choices: [[-1]] }, 'choices: expected token ids from 0 to 319, found -1'],
])('refuses %j', (options, sentence) => {
  expect(() => settings(options)).toThrow(`generate: ${sentence}`);
});
