// Which sampled reasons are kept; what a model writes is given here.
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { emptyTally, withSampledReasons } from '../../../src/methods/stepamc/rationales.js';
import type { Decoder } from '../../../src/models/decoder.js';
import type { Step, StepRecord } from '../../../src/records/record.js';
import type { WrittenVerdict } from '../../../src/scoring/verdict/written-verdicts.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';

const written = vi.hoisted(() => ({
  prompts: [] as string[][],
  ids: [] as number[][],
  answer: (_prompt: string, _attempt: number): string => '',
}));

vi.mock('../../../src/scoring/verdict/written-verdicts.js', async (original) => ({
  ...(await original<object>()),
  writeVerdicts: async (
    _: unknown,
    prompts: number[][],
    { iteration, promptIds }: { iteration: number; promptIds: number[] },
  ): Promise<WrittenVerdict[]> => {
    const texts = prompts.map((ids) => tokenizer.decode(ids));
    written.prompts.push(texts);
    written.ids.push(promptIds);
    return texts.map((text) => {
      const line = written.answer(text, iteration);
      const end = line.indexOf('\n');
      const tokens = [...tokenizer.encode(line)];
      return { tokens, logprobs: tokens.map(() => 0), reason: end < 0 ? undefined : end + 1 };
    });
  },
}));

const tokenizer = byteTokenizer();
const verdicts = verdictTokenizer(
  {
    template: 'compact',
    pos_word: '1',
    neg_word: '0',
    response_format: 'rationale_then_verdict',
    rationale_tokens: 30,
  },
  tokenizer,
);
const step = (text: string, label: Step['label'], rationale?: string): Step => ({
  text,
  label,
  kind: 'normal',
  ...(rationale === undefined ? {} : { rationale }),
});
const record = (...steps: Step[]): StepRecord => ({ problem: '1+1?', steps });
const options = { tokenizer: verdicts, attempts: 3, maxLength: 200, temperature: 1, seed: 5 };
const sampled = async (records: StepRecord[], more: Partial<typeof options> = {}, first = 0) => {
  const tally = emptyTally();
  const found = await withSampledReasons(
    undefined as unknown as Decoder,
    records,
    { ...options, ...more },
    { first, tally },
  );
  return { tally, reasons: found?.map(({ steps }) => steps.map(({ rationale }) => rationale)) };
};

beforeEach(() => {
  written.prompts = [];
  written.ids = [];
});

describe('sampled reasons', () => {
  test('the first whose verdict is the label is kept; no step is asked again after that', async () => {
    written.answer = (prompt, attempt) =>
      prompt.includes('=3') ? `no ${attempt}\n${attempt < 1 ? 1 : 0}` : 'fine\n1';
    const { reasons, tally } = await sampled([record(step('1+1=2', 1), step('2+1=3', 0))]);
    expect(reasons).toEqual([['fine', 'no 1']]);
    expect(written.prompts.map(({ length }) => length)).toEqual([2, 1]);
    expect(tally).toEqual({
      asked: 2,
      tooLong: 0,
      attempts: 3,
      unreadable: 0,
      kept: { 1: 1, 0: 1 },
      of: { 1: 1, 0: 1 },
    });
  });

  test.each([
    ['that does not end', 'on and on'],
    ['with another word after it', 'why\n7'],
    ['with the other verdict', 'why\n0'],
    ['that is empty', '\n1'],
    ['of more tokens than fit', `${'x'.repeat(30)}\n1`],
  ])('none %s is kept', async (_, answer) => {
    written.answer = () => answer;
    const { reasons, tally } = await sampled([record(step('1+1=2', 1))]);
    expect(reasons).toEqual([[undefined]]);
    expect(tally.attempts).toBe(3);
    expect(tally.kept).toEqual({ 1: 0, 0: 0 });
  });

  test('none with broken UTF-8 is kept', async () => {
    vi.spyOn(verdicts.tokenizer, 'decode').mockReturnValueOnce('1+1?').mockReturnValueOnce('x\ufffd');
    written.answer = () => 'why\n1';
    const { tally } = await sampled([record(step('1+1=2', 1))], { attempts: 1 });
    expect(tally).toMatchObject({ attempts: 1, unreadable: 0, kept: { 1: 0, 0: 0 } });
    vi.restoreAllMocks();
  });

  test('steps without a label, and those with a reason of their own, are left as they are', async () => {
    written.answer = () => 'new\n1';
    const { reasons, tally } = await sampled([record(step('a', null), step('b', 1, 'own'), step('c', 1))]);
    expect(reasons).toEqual([[undefined, 'own', 'new']]);
    expect(tally.asked).toBe(1);
  });

  test('steps without room for a reason are counted, not asked', async () => {
    const { tally, reasons } = await sampled([record(step('1+1=2', 1))], { maxLength: 20 });
    expect(tally).toMatchObject({ asked: 0, tooLong: 1 });
    expect(reasons).toEqual([[undefined]]);
  });

  test('what is drawn for a step depends on its place among all records, not on the batch', async () => {
    written.answer = () => 'why\n1';
    const two = [record(step('a', 1)), record(step('b', 1), step('c', 1))];
    await sampled(two);
    await sampled(two.slice(1), {}, 1);
    const [[, ...together] = [], alone] = written.ids;
    expect(alone).toEqual(together);
    expect(new Set(written.ids[0]).size).toBe(3);
  });
});
