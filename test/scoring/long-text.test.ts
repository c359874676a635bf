// A text far beyond what a judge reads is not tokenised whole, and what is judged beside it is judged as ever.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { judgeSteps } from '../../src/scoring/judge.js';
import { readingUpTo } from '../../src/tokenizer/reading-up-to.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { openTest } from '../ops/devices.js';

const device = openTest(undefined, { threads: 1 });
let judge: Model;
let tokenizer: Tokenizer;

beforeAll(async () => {
  judge = await loadModel(device, 'word-problems-judge');
  tokenizer = await judge.tokenizer();
});
afterAll(() => {
  judge.dispose();
  device.dispose();
});

const PROBLEM = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
const STEPS = ['Tom: 12 + 7 = 19', 'Answer: 19'];
const LONG = 'Tom has apples '.repeat(100_000);

it.each([
  ['a step', PROBLEM, [...STEPS, LONG]],
  ['the problem', LONG, STEPS],
])('%s of 1.5 MB is read no further than the model reads', async (_, problem, steps) => {
  const encode = vi.spyOn(tokenizer, 'encode');
  const judged = await judgeSteps(judge, problem, steps);
  const most = Math.max(...encode.mock.calls.map(([text]) => text.length));
  encode.mockRestore();
  expect(most).toBeLessThan(40 * judge.decoder.config.maxPositions);
  const alone =
    problem === LONG ? STEPS.map(() => null) : (await judgeSteps(judge, PROBLEM, STEPS)).map(byNumber);
  expect(judged.slice(0, STEPS.length).map(byNumber)).toEqual(alone);
  expect(judged.at(-1)?.probability).toBeNull();
});
const byNumber = ({ probability }: { readonly probability: number | null }) => probability;

describe('reading up to some tokens', () => {
  it.each([
    ['ordinary words', LONG.slice(0, 5_000)],
    ['few tokens of many characters', ' '.repeat(5_000)],
    ['pairs of code units', 'x😀'.repeat(2_000)],
    ['a short text', 'Tom'],
  ])('gives the tokens of %s, or more of them than are read', (_, text) => {
    const whole = tokenizer.encode(text);
    for (const longest of [1, 7, 40, 600]) {
      const read = readingUpTo(tokenizer, longest).encode(text);
      expect(read.slice(0, longest)).toEqual(whole.slice(0, longest));
      expect(read.length > longest).toBe(whole.length > longest);
    }
  });
});
