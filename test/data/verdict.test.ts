import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { arithmeticRecords } from '../../src/data/arithmetic.js';
import { solutionSegments } from '../../src/data/solution.js';
import {
  type VerdictTokenizer,
  verdictSegments,
  verdictTemplate,
  verdictTokenizer,
} from '../../src/data/verdict.js';
import { threadClock } from '../../src/native/processor-time.js';
import { type StepRecord, verdictSamples } from '../../src/records/record.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { segmentTokenizer } from '../../src/tokenizer/segments.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { sharedPath } from '../shared.js';
import { load } from './data-file.js';

const spaced = await loadTokenizer(fileURLToPath(new URL('../tokenizer/files/prepend', import.meta.url)));
const qwen = sharedPath('data/tokenizers/qwen2_5');
const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');

const record: StepRecord = {
  problem: '7;+5;-3',
  steps: [
    { text: '7+5=12', label: 1, kind: 'normal' },
    { text: '12-3=8', label: 0, kind: 'normal' },
  ],
};

/** Each place of the whole-solution form must give the tokens of the sample of that step. */
function expectSameTokens(verdicts: VerdictTokenizer, solution: StepRecord): void {
  const { trunk, verdicts: places } = verdicts.solution(solution);
  const samples = [...verdictSamples(solution)];
  expect(places).toHaveLength(samples.length);
  for (const [i, place] of places.entries()) {
    const word = place.label === 1 ? verdicts.template.positiveIds : verdicts.template.negativeIds;
    const sample = verdicts.sample(samples[i]!);
    expect([...trunk.ids.subarray(0, place.at), ...verdicts.tailIds, ...word]).toEqual([...sample.ids]);
    expect(sample.lossMask.reduce((sum, bit) => sum + bit, 0)).toBe(word.length);
    expect(sample.lossMask.subarray(-word.length).every((bit) => bit === 1)).toBe(true);
  }
}

describe('the compact prompt', () => {
  const verdicts = verdictTokenizer({}, byteTokenizer());

  it('is the problem, one step per line, and a mark before the verdict', () => {
    const texts = [...verdictSamples(record)].map((sample) =>
      byteTokenizer().decode(verdicts.sample(sample).ids),
    );
    expect(texts).toEqual(['7;+5;-3\n7+5=12\n?+', '7;+5;-3\n7+5=12\n12-3=8\n?-']);
  });

  it('learns only the verdict', () => {
    const [sample] = verdictSamples(record);
    expect(verdictSegments(sample!, verdicts.template).map(({ role, train }) => [role, train])).toEqual([
      ['prompt', false],
      ['step', false],
      ['prompt', false],
      ['verdict', true],
    ]);
  });

  it('begins with the pretraining text', () => {
    const text = solutionSegments(record)
      .map((segment) => segment.text)
      .join('');
    const { trunk } = verdicts.solution(record);
    expect(byteTokenizer().decode(trunk.ids)).toBe(text);
  });

  it('as a whole solution has the same tokens', () => {
    for (const made of arithmeticRecords({ seed: 1, samples: 50, error_rate: 0.5 }))
      expectSameTokens(verdicts, made);
  });
});

describe('the whole-solution form', () => {
  const verdicts = verdictTokenizer({}, byteTokenizer());
  const partly: StepRecord = {
    ...record,
    steps: [{ text: 'a', label: null, kind: 'normal' }, ...record.steps],
  };

  it('has places after labelled steps, or after all steps', () => {
    expect(verdicts.solution(partly).verdicts.map((place) => place.step)).toEqual([1, 2]);
    expect(verdicts.solution(partly, { steps: 'all' }).verdicts.map((place) => place.label)).toEqual([
      null,
      1,
      0,
    ]);
    const unlabelled = verdicts.solution({
      problem: 'P',
      steps: [{ text: 'a', label: null, kind: 'normal' }],
    });
    expect(unlabelled).toMatchObject({ verdicts: [], tooLong: 0 });
    expect(unlabelled.trunk.ids).toHaveLength(0);
  });

  it('counts the verdicts beyond a length limit and ends with the last one within it', () => {
    const whole = verdicts.solution(record);
    const [first, second] = whole.verdicts;
    expect(verdicts.solution(record, { maxLength: second!.at + 2 })).toEqual(whole);
    const held = verdicts.solution(record, { maxLength: second!.at + 1 });
    expect(held.tooLong).toBe(1);
    expect(held.verdicts).toEqual([first]);
    expect(held.trunk.ids).toHaveLength(first!.at);
    expect(held.trunk.steps).toHaveLength(1);
  });
});

describe('prompt options', () => {
  it('a custom template asks for the verdict after {steps}, and its line breaks end every step', () => {
    const template = 'Q: {problem}\n\n{steps}\n\nCorrect?';
    const verdicts = verdictTokenizer({ template, pos_word: ' yes', neg_word: ' no' }, byteTokenizer());
    const [, second] = verdictSamples(record);
    expect(byteTokenizer().decode(verdicts.sample(second!).ids)).toBe(
      'Q: 7;+5;-3\n\n7+5=12\n\n12-3=8\n\nCorrect? no',
    );
    expectSameTokens(verdicts, record);
  });

  it('a tokenizer may add a start token and a space before a text', () => {
    const verdicts = verdictTokenizer({ template: 'compact', pos_word: 'right', neg_word: 'wrong' }, spaced);
    const [sample] = verdictSamples(record);
    expect(spaced.decode(verdicts.sample(sample!).ids)).toBe('<s> 7;+5;-3\n7+5=12\n?right');
    expect(verdicts.sample(sample!).ids.filter((id) => id === spaced.bosId)).toHaveLength(1);
    expect(verdicts.template.positiveIds.length).toBeGreaterThan(1);
    expectSameTokens(verdicts, record);
  });

  it('a chat template is applied once, even one that trims messages', () => {
    const verdicts = verdictTokenizer({}, spaced);
    const [sample] = verdictSamples(record);
    const text = spaced.decode(verdicts.sample(sample!).ids);
    expect(text).toMatch(/^<s> \[user\] Below are a problem .*# Steps\n\n7\+5=12\n\n\n\[assistant\]\+$/s);
    expect(text.match(/\[user\]/g)).toHaveLength(1);
    expectSameTokens(verdicts, record);
  });

  it('an invalid template and invalid words are refused with the reason', () => {
    const of = (options: object) => () => verdictTemplate(options, byteTokenizer());
    expect(of({ template: 'compakt' })).toThrow(
      'prompt.template: there is no template "compakt"; did you mean compact? Expected auto, chat, compact, trl, turns, or',
    );
    expect(of({ template: 'whatever' })).toThrow('no template "whatever"; expected auto, chat, compact, trl');
    expect(of({ template: '{problem}' })).toThrow('must hold {steps} exactly once; it holds it 0 times');
    expect(of({ template: '{steps}{problem}' })).toThrow(
      'has {steps} before {problem}; the problem comes first',
    );
    expect(of({ template: 'chat' })).toThrow('the tokenizer has no chat template');
    expect(of({ pos_word: '' })).toThrow('prompt.pos_word is "", which has no tokens');
    expect(of({ pos_word: 'no', neg_word: 'not' })).toThrow('one word begins with the other');
    expect(of({ pos_word: 'x', neg_word: 'x' })).toThrow('one word begins with the other');
  });
});

describe('solutionSegments', () => {
  const tokenize = segmentTokenizer(byteTokenizer());
  const learned = (options: Parameters<typeof solutionSegments>[1]): string => {
    const { ids, lossMask } = tokenize(solutionSegments(record, options));
    return byteTokenizer().decode(ids.filter((_, i) => lossMask[i] === 1));
  };

  it('learns the steps or only their results, and the end token', () => {
    expect(learned({})).toBe('7+5=12\n12-3=8\n');
    expect(learned({ learn: 'results' })).toBe('12\n8\n');
    expect(learned({ learn: 'results', end: '<|eos|>' })).toBe('12\n8\n<|eos|>');
    const { steps } = tokenize(solutionSegments(record, { learn: 'results' }));
    expect(steps.map((step) => step.label)).toEqual([1, 0]);
  });
});

describe.skipIf(qwen === undefined || prm800k === undefined)(
  'with Qwen2.5 on PRM800K (needs the shared data)',
  () => {
    let tokenizer: Tokenizer;
    let verdicts: VerdictTokenizer;
    let records: readonly StepRecord[];
    beforeAll(async () => {
      tokenizer = await loadTokenizer(qwen ?? '');
      verdicts = verdictTokenizer({}, tokenizer);
      records = (await load(prm800k ?? '')).records;
    });

    it('has the text of the chat template for the whole request', () => {
      const solution = records[0]!;
      const [sample] = verdictSamples(solution);
      const { opening, afterProblem, stepEnd, positive } = verdicts.template;
      const request = `${opening.slice(opening.indexOf('Below'))}${sample!.problem}${afterProblem}${sample!.steps[0]}${stepEnd}`;
      const chat = tokenizer.applyChatTemplate([{ role: 'user', content: request }], {
        addGenerationPrompt: true,
      });
      expect(tokenizer.decode(verdicts.sample(sample!).ids)).toBe(chat + positive);
      expect(stepEnd).toBe('\n\n');
      expect(verdicts.template.positiveIds).toEqual([10]);
      expect(verdicts.template.negativeIds).toEqual([12]);
    });

    it('as a whole solution has the same tokens', () => {
      for (const solution of records.slice(0, 60)) expectSameTokens(verdicts, solution);
    });

    it('tokenises ten thousand samples in a few seconds of a processor', () => {
      const samples = records.flatMap((solution) => [...verdictSamples(solution)]).slice(0, 10_000);
      const start = threadClock();
      let tokens = 0;
      for (const sample of samples) tokens += verdicts.sample(sample).ids.length;
      expect(samples).toHaveLength(10_000);
      expect(tokens).toBeGreaterThan(2_000_000);
      // It takes about 1 s; the limit allows for other processors.
      expect(threadClock() - start).toBeLessThan(20_000);
    });
  },
);
