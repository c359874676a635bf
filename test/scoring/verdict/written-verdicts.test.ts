// Verdicts after a reason that the model writes, against the plain sequences behind them.
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import type { StepAmcRoles } from '../../../src/methods/stepamc/roles.js';
import { verdictRollouts } from '../../../src/methods/stepamc/rollout.js';
import { textHash } from '../../../src/random/text-hash.js';
import type { StepRecord } from '../../../src/records/record.js';
import { verdictScorer } from '../../../src/scoring/verdict/scorer.js';
import { judgeVerdicts } from '../../../src/scoring/verdict/verdicts.js';
import { VOTE_TEMPERATURE, wordOf, writeVerdicts } from '../../../src/scoring/verdict/written-verdicts.js';
import { hiddenStates, scoreRows } from '../../../src/sequences/forward.js';
import { verdictSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { embeddedRoles } from '../../methods/stepamc/embedded-roles.js';
import { openTest } from '../../ops/devices.js';

vi.mock('../../../src/sequences/forward.js', async (original) => {
  const actual = await original<typeof import('../../../src/sequences/forward.js')>();
  return { ...actual, hiddenStates: vi.fn(actual.hiddenStates) };
});

const device = openTest();
let roles: StepAmcRoles;
beforeAll(async () => {
  roles = await embeddedRoles(device);
});
afterAll(() => {
  roles.dispose();
  device.dispose();
});

// The arithmetic base goes on after a line "a+b=" with the result and a line break: its reason is the next line.
const record: StepRecord = {
  problem: '12+7-3',
  steps: [
    { text: '12+7=19', label: 1, rationale: '19', kind: 'normal' },
    { text: '19-3=17', label: 0, kind: 'normal' },
  ],
};
const bytes = byteTokenizer();
const options = { template: '{problem}\n{steps}\n12+7=', pos_word: '1', neg_word: '0' } as const;
const tokenizer = verdictTokenizer(
  { ...options, response_format: 'rationale_then_verdict', rationale_tokens: 6 },
  bytes,
);
const text = (tokens: readonly number[]) => Buffer.from(tokens).toString();
const solution = tokenizer.solution(record);
const prompts = solution.verdicts.map(({ at }) => [...solution.trunk.ids.slice(0, at), ...tokenizer.tailIds]);

describe('a sequence with a reason', () => {
  const [first, second] = solution.verdicts;
  const placed = { ...solution, verdicts: [{ ...first!, rationale: tokenizer.reason(' 19\n ') }, second!] };
  const sequence = verdictSequence(placed, tokenizer, 0);

  test('learns the reason and the word, which weighs as much as the reason', () => {
    expect(text(sequence.targets.map(({ token }) => token))).toBe('19\n1');
    expect(sequence.targets.map(({ weight }) => weight)).toEqual([1, 1, 1, 3]);
    // Each row predicts the token after it in its branch.
    for (const { row, token } of sequence.targets.slice(0, -1)) expect(sequence.ids[row + 1]).toBe(token);
  });

  test('has both words after the same reason, and learns no word without one', () => {
    const [{ positive, negative }] = sequence.verdicts as [(typeof sequence.verdicts)[number]];
    expect(positive.map(({ row }) => row)).toEqual(negative.map(({ row }) => row));
    expect(positive[0]!.row).toBe(sequence.targets.at(-1)!.row);
    expect(sequence.targets).toHaveLength(4);
  });

  test('a reason that is longer than allowed is refused', () => {
    expect(() => tokenizer.reason('12345678')).toThrow(
      'a reason has 9 tokens, more than prompt.rationale_tokens (6)',
    );
  });
});

test('a model writes a line and then a word, whatever is written beside it', async () => {
  const write = (chosen: readonly number[]) =>
    writeVerdicts(
      roles.decoder,
      chosen.map((i) => prompts[i]!),
      { tokenizer, temperature: 1, seed: 5, promptIds: [...chosen] },
    );
  const both = (await write([0, 1]))!;
  expect(await write([1])).toEqual([both[1]]);
  for (const { tokens, logprobs, reason } of both) {
    expect(logprobs).toHaveLength(tokens.length);
    if (reason === undefined) expect(tokens).toHaveLength(6);
    else expect(text(tokens.slice(0, reason))).toMatch(/^[^\n]*\n$/);
  }
  expect(await writeVerdicts(roles.decoder, [], { tokenizer })).toEqual([]);
});

test('a verdict is judged by the words after the most likely reason, which a plain sequence gives too', async () => {
  const written = (await writeVerdicts(roles.decoder, prompts, { tokenizer, temperature: 0 }))!;
  expect(text(written[0]!.tokens)).toMatch(/^19\n/);
  const judged = await judgeVerdicts(roles.decoder, {}, inMemory([verdictSequence(solution, tokenizer, 0)]), {
    threshold: 0.5,
    microBatchTokens: 512,
    tokenizer,
  });
  expect(judged.map(({ step, label }) => [step, label])).toEqual([
    [0, 1],
    [1, 0],
  ]);
  for (const [i, { tokens, reason }] of written.entries()) {
    expect(reason).toBeDefined();
    const ids = [...prompts[i]!, ...tokens.slice(0, reason)];
    const sequence = { ids, positions: ids.map((_, t) => t), branch: undefined, rowId: 0 };
    const rows = ['1', '0'].map((word) => ({ row: ids.length - 1, token: word.charCodeAt(0) }));
    const scores = scoreRows(roles.decoder, {}, [{ sequence, rows }]);
    const [yes, no] = await scores.logprobs.readFloats();
    const { logPositive, logNegative, verdict, probability } = judged[i]!;
    expect(logPositive).toBeCloseTo(yes!, 4);
    expect(logNegative).toBeCloseTo(no!, 4);
    expect(verdict).toBe(probability >= 0.5 ? 1 : 0);
    for (const tensor of Object.values(scores)) tensor.dispose();
  }
});

test('several reasons vote by the mean of their probabilities, whatever is judged beside them', async () => {
  const votes = 3;
  const asked = { threshold: 0.5, microBatchTokens: 512, tokenizer, votes };
  const sequence = verdictSequence(solution, tokenizer, 0);
  const judged = await judgeVerdicts(roles.decoder, {}, inMemory([sequence]), asked);
  const other = verdictSequence(
    tokenizer.solution({
      problem: '8+5-2',
      steps: ['8+5=13', '13-2=12'].map((step) => ({ text: step, label: 1, kind: 'normal' })),
    }),
    tokenizer,
    1,
  );
  const beside = await judgeVerdicts(roles.decoder, {}, inMemory([other, sequence]), asked);
  expect(beside.slice(2)).toEqual(judged.map((verdict) => ({ ...verdict, solution: 1 })));
  for (const [i, prompt] of prompts.entries()) {
    const each: { readonly p: number; readonly reason: string }[] = [];
    for (let vote = 0; vote < votes; vote++) {
      const [drawn] = (await writeVerdicts(roles.decoder, [prompt], {
        ...{ tokenizer, temperature: VOTE_TEMPERATURE, iteration: vote },
        promptIds: [textHash(prompt.join())],
      }))!;
      const { tokens, reason } = drawn!;
      if (reason === undefined) continue;
      const ids = [...prompt, ...tokens.slice(0, reason)];
      const plain = { ids, positions: ids.map((_, t) => t), branch: undefined, rowId: 0 };
      const rows = ['1', '0'].map((word) => ({ row: ids.length - 1, token: word.charCodeAt(0) }));
      const scores = scoreRows(roles.decoder, {}, [{ sequence: plain, rows }]);
      const [yes, no] = (await scores.logprobs.readFloats()) as unknown as [number, number];
      each.push({ p: 1 / (1 + Math.exp(no - yes)), reason: text(tokens.slice(0, reason)).trim() });
      for (const tensor of Object.values(scores)) tensor.dispose();
    }
    expect(each.length).toBeGreaterThan(0);
    const { probability, verdict, reason, logPositive, logNegative } = judged[i]!;
    expect(probability).toBeCloseTo(each.reduce((sum, { p }) => sum + p, 0) / each.length, 4);
    expect(verdict).toBe(probability >= 0.5 ? 1 : 0);
    expect(Math.exp(logPositive) + Math.exp(logNegative)).toBeCloseTo(1, 6);
    const said = each.find(({ p }) => p >= 0.5 === (verdict === 1)) ?? each[0];
    expect(reason).toBe(said?.reason);
  }
});

test('a reason that does not end is unreadable', async () => {
  const short = verdictTokenizer(
    { ...options, response_format: 'rationale_then_verdict', rationale_tokens: 2 },
    bytes,
  );
  const [verdict] = await judgeVerdicts(roles.decoder, {}, inMemory([verdictSequence(solution, short, 0)]), {
    threshold: 'greedy',
    microBatchTokens: 512,
    tokenizer: short,
  });
  expect(verdict).toMatchObject({ verdict: undefined, probability: 0.5, unreadable: true });
  // Whoever takes scores, such as a trainer over HTTP, gets none.
  const prompt = { ...options, response_format: 'rationale_then_verdict', rationale_tokens: 2 } as const;
  const steps = record.steps.map(({ text: step }) => step);
  for (const likelihood of [undefined, { constant: 0, verdict: 1, least: 1, before: 1 }]) {
    const judge = verdictScorer(roles.decoder, { tokenizer: bytes, prompt, likelihood });
    const [scored] = (await judge.score([{ problem: record.problem, steps }]))!;
    expect(scored).toMatchObject({ scores: [null, null], verdicts: [null, null], reasons: [null, null] });
  }
});

test('a rollout writes reasons, and its answers tell where the word begins', async () => {
  const questions = (await verdictRollouts({
    roles,
    sequences: inMemory([verdictSequence(solution, tokenizer, 0)]),
    template: tokenizer.template,
    tailIds: tokenizer.tailIds,
    tokenizer: bytes,
    settings: { rollout: 'sample', steps: 'labelled', temperature: 1, reference: 'base' },
    microBatchTokens: 512,
    seed: 11,
  }).rollOut({ items: [0], iteration: 0, signal: new AbortController().signal }))!;
  expect(questions).toHaveLength(2);
  for (const { answers } of questions) {
    const [answer] = answers;
    const { tokens, reason, verdict, oldLogprobs, samplerLogprobs, values } = answer!;
    expect(verdict).toBe(reason === undefined ? undefined : wordOf(tokens.slice(reason), tokenizer.template));
    expect(values).toHaveLength(tokens.length);
    oldLogprobs.forEach((logprob, t) => {
      expect(logprob).toBeCloseTo(samplerLogprobs[t]!, 3);
    });
  }
});

test('a rollout scores no more tokens at once than a micro-batch has, its reasons included', async () => {
  const sequence = verdictSequence(solution, tokenizer, 0);
  // Two solutions with the words alone.
  const microBatchTokens = 2 * sequence.ids.length;
  vi.mocked(hiddenStates).mockClear();
  await verdictRollouts({
    roles,
    sequences: inMemory([sequence, { ...sequence, rowId: 1 }]),
    template: tokenizer.template,
    tailIds: tokenizer.tailIds,
    tokenizer: bytes,
    settings: { rollout: 'sample', steps: 'labelled', temperature: 1, reference: 'base' },
    microBatchTokens,
    seed: 11,
  }).rollOut({ items: [0, 1], iteration: 0, signal: new AbortController().signal });
  const groups = vi.mocked(hiddenStates).mock.calls.map(([, , group]) => group.map(({ ids }) => ids.length));
  expect(groups.length).toBeGreaterThan(0);
  for (const lengths of groups)
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBeLessThanOrEqual(microBatchTokens);
});
