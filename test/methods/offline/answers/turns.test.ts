// Conversations of an agent as answers: turns are learned, what came back between them is read.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, inject, it, vi } from 'vitest';
import {
  allAnswers,
  judgedAnswers,
  labelledAnswers,
  stepPairs,
} from '../../../../src/methods/offline/answers/kinds.js';
import { train } from '../../../../src/methods/run.js';
import { shippedDirectory } from '../../../../src/models/base.js';
import type { StepRecord } from '../../../../src/records/record.js';
import {
  learnedTokens,
  mismatched,
  type OfflineItem,
  offlineSequence,
} from '../../../../src/scoring/implicit/items.js';
import { spanBounds } from '../../../../src/scoring/implicit/sums.js';
import { answerTokenizer } from '../../../../src/scoring/implicit/tokens.js';
import { loadTokenizer } from '../../../../src/tokenizer/load.js';
import { load } from '../../../data/data-file.js';
import { TINY } from '../../reward/tiny-model.js';

const folder = mkdtempSync(join(inject('folder'), 'offline-turns-'));
const tokenizer = await loadTokenizer(shippedDirectory('word-problems-turns') as string);
const tokens = answerTokenizer(tokenizer, 'auto');

const call = (id: string, name: string, expression: string) => ({
  role: 'assistant',
  content: name,
  tool_calls: [
    { id, type: 'function', function: { name: 'calculator', arguments: JSON.stringify({ expression }) } },
  ],
});
const result = (id: string, content: string) => ({ role: 'tool', tool_call_id: id, content });
/** An episode whose first turn is right, and whose answer is as given. */
const row = (id: string, answer: string, rewards: readonly (number | null)[], sum = '19') => ({
  messages: [
    { role: 'user', content: 'Tom has 12 apples. Tom finds 7 more.' },
    call(id, 'Tom', '12 + 7'),
    result(id, sum),
    { role: 'assistant', content: answer },
  ],
  turn_rewards: rewards,
  reward: rewards.at(-1) ?? 0,
});
let files = 0;
async function recordsOf(...rows: readonly object[]): Promise<StepRecord[]> {
  const file = join(folder, `rows-${files++}.jsonl`);
  writeFileSync(file, rows.map((one) => JSON.stringify(one)).join('\n'));
  return (await load(file)).records;
}

const PROMPT = 'Tom has 12 apples. Tom finds 7 more.\n';
const FIRST =
  'Tom<tool_call>{"name": "calculator", "arguments": {"expression": "12 + 7"}}</tool_call><|eos|>';

/** The text of the learned tokens of each answer, as the rows of the forward have them. */
const learned = (item: OfflineItem) =>
  offlineSequence(item, 0).answers.map(({ rows }) => tokenizer.decode(rows.map(({ token }) => token)));

describe('the tokens of turns', () => {
  it('of an answer are those of its turns, each with its mark; the rest is read before them', async () => {
    const [record] = await recordsOf(row('a', 'Answer: 19', [1, 1]));
    const [item] = allAnswers.items([record as StepRecord], tokens);
    const { prompt, answers } = item as OfflineItem;
    const answer = answers[0] as OfflineItem['answers'][number];
    expect(tokenizer.decode(prompt)).toBe(PROMPT);
    expect(tokenizer.decode(answer.ids)).toBe(`${FIRST}19\nAnswer: 19<|eos|>`);
    expect(learned(item as OfflineItem)).toEqual([`${FIRST}Answer: 19<|eos|>`]);
    // Tom, the call's opening, 2 1, +, 7, its end, the mark; 9 1 and the line break; Answer, :, 9 1, the mark.
    expect(answer).toMatchObject({ from: 0, between: [{ begin: 8, end: 11 }] });
    expect(answer.steps.map(({ begin, end }) => [begin, end])).toEqual([
      [0, 8],
      [11, 16],
    ]);
    expect(learnedTokens(answer)).toBe(13);
    // In the log-probs of a micro-batch, in which this answer begins at 100, only learned tokens count.
    const scored = { tokens: answer, item: 0, begin: 100, reference: undefined };
    expect(
      [undefined, 0, 1].map((step) =>
        spanBounds({ answer: scored, ...(step === undefined ? {} : { step }) }),
      ),
    ).toEqual([
      [100, 113],
      [100, 108],
      [108, 113],
    ]);
    // Each token is predicted by the one before it, the first of a turn by the line break of the result.
    const { ids } = offlineSequence(item as OfflineItem, 0);
    const rows = offlineSequence(item as OfflineItem, 0).answers.flatMap((one) => one.rows);
    expect(rows.map((place) => place.row)).toEqual(
      [...Array(8).keys()]
        .map((i) => prompt.length - 1 + i)
        .concat([10, 11, 12, 13, 14].map((i) => prompt.length + i)),
    );
    expect(tokenizer.decode([ids[prompt.length + 10] as number])).toBe('\n');
  });

  it('labels of turns are those of their spans, and a mismatched answer is cut with what is between', async () => {
    const [record] = await recordsOf(row('a', 'Answer: 5', [1, 0]));
    const kind = judgedAnswers({ after_first_error: 'keep', answer_step: 'keep' });
    const [item] = kind.items([record as StepRecord], tokens);
    const [answer] = (item as OfflineItem).answers;
    expect(
      answer?.steps.map(({ label, begin, end }) => [label, tokenizer.decode(answer.ids.slice(begin, end))]),
    ).toEqual([
      [1, FIRST],
      [0, 'Answer: 5<|eos|>'],
    ]);
    expect(answer?.label).toBe(0);
    const other = { problem: 1, prompt: [1, 2], answers: [] };
    const cut = mismatched(other, item as OfflineItem, 2 + 10);
    expect(cut.answers[0]).toMatchObject({ between: [{ begin: 8, end: 10 }], steps: [{ begin: 0, end: 8 }] });
    expect(learnedTokens(cut.answers[0] as OfflineItem['answers'][number])).toBe(8);
  });

  it('pairs of turns follow the same turns and results, whatever the ids of their calls', async () => {
    const records = await recordsOf(
      row('a', 'Answer: 19', [1, 1]),
      // Another answer after another result is no pair with it.
      row('b', 'Answer: 20', [1, 0], '20'),
      row('c', 'Answer: 7', [1, 0]),
    );
    const pairs = stepPairs.items(records, tokens);
    expect(pairs.map(learned)).toEqual([['Answer: 19<|eos|>', 'Answer: 7<|eos|>']]);
    expect(pairs[0]?.answers.map(({ ids }) => tokenizer.decode(ids))).toEqual([
      `${FIRST}19\nAnswer: 19<|eos|>`,
      `${FIRST}19\nAnswer: 7<|eos|>`,
    ]);
    // Turns that say the same and call for something else are a pair too.
    const calls = await recordsOf(
      { ...row('a', 'Answer: 19', [1, 1]), messages: row('a', 'Answer: 19', []).messages },
      {
        messages: [
          row('d', '', []).messages[0],
          call('d', 'Tom', '12 - 7'),
          result('d', '5'),
          { role: 'assistant', content: 'Answer: 5' },
        ],
        turn_rewards: [0, 0],
      },
    );
    expect(stepPairs.items(calls, tokens).map(learned)).toEqual([[FIRST, FIRST.replace('+', '-')]]);
  });
});

/** One run of a few steps with each method: what it needs of its rows is there, and its loss is a number. */
describe('every method that learns from answers takes turns', () => {
  beforeAll(() => {
    vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
    vi.spyOn(console, 'error').mockImplementation(() => {});
  });

  it.each([
    ['solution_sft', {}],
    ['rft', {}],
    ['dpo', {}],
    ['kto', {}],
    ['step_kto', { step_kto: { iterations: 0 } }],
    ['step_dpo', {}],
    ['full_step_dpo', {}],
    ['simpo', {}],
    ['orpo', {}],
    ['implicit_prm', {}],
  ])('%s', async (method, sections) => {
    const rows = Array.from({ length: 12 }, (_, i) => {
      const problem = { role: 'user', content: `Tom has ${12 + i} apples. Tom finds 7 more.` };
      return [1, 0].map((right) => {
        const one = row(`${i}-${right}`, `Answer: ${right ? 19 + i : 5}`, [1, right]);
        return { ...one, messages: [problem, ...one.messages.slice(1)] };
      });
    });
    const file = join(folder, `${method}.jsonl`);
    writeFileSync(
      file,
      rows
        .flat()
        .map((one) => JSON.stringify(one))
        .join('\n'),
    );
    const own = (sections as Readonly<Record<string, object>>)[method];
    const { directory } = await train(
      {
        method,
        model: { base: { init: TINY }, tokenizer: 'word-problems-turns' },
        lora: 'none',
        data: { train: file, max_length: 128, split: [8, 2, 2] },
        [method]: { batch_size: 4, num_train_epochs: 1, ...own },
        run: { device: 'cpu', threads: 1 },
      } as never,
      { output: join(folder, method) },
    );
    const lines = readFileSync(join(directory, 'metrics.jsonl'), 'utf8').trim().split('\n');
    const steps = lines
      .map((line) => JSON.parse(line))
      .filter(({ phase, loss }) => phase === method && loss !== undefined);
    expect(steps.length).toBeGreaterThan(1);
    for (const { loss } of steps) expect(Number.isFinite(loss)).toBe(true);
    if (method === 'solution_sft') {
      // 8 tokens of the call and 5 or, of the answer 5, 4 of the answer.
      const targets = steps.map((step) => step.targets as number);
      expect(targets[0]).toBeGreaterThanOrEqual(4 * 12);
      expect(targets[0]).toBeLessThanOrEqual(4 * 13);
    }
  });
});

it('labelled answers are the conversations whose outcome is known', async () => {
  const records = await recordsOf(row('a', 'Answer: 19', [1, 1]), {
    ...row('b', 'Answer: 5', [1, 0]),
    reward: undefined,
  });
  expect(labelledAnswers.items(records, tokens).map(({ answers }) => answers[0]?.label)).toEqual([1]);
});
