// S3c on conversations of agents: a wrong turn and what came back for it are read, the turns after it are learned.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { correctionVariant } from '../../../src/data/corrections/variants.js';
import { train } from '../../../src/methods/run.js';
import { correctionTokenizer } from '../../../src/methods/s3c/sequences.js';
import { correctedTurns, endsRight } from '../../../src/methods/s3c/turns.js';
import { shippedDirectory } from '../../../src/models/base.js';
import type { StepRecord } from '../../../src/records/record.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import { load } from '../../data/data-file.js';
import { TINY } from '../reward/tiny-model.js';

const folder = mkdtempSync(join(inject('folder'), 's3c-turns-'));
const tokenizer = await loadTokenizer(shippedDirectory('word-problems-turns') as string);

const call = (id: string, expression: string) => ({
  role: 'assistant',
  content: 'Tom',
  tool_calls: [
    { id, type: 'function', function: { name: 'calculator', arguments: JSON.stringify({ expression }) } },
  ],
});
const result = (id: string, content: string) => ({ role: 'tool', tool_call_id: id, content });
/** An agent that subtracts where it should add, and adds then. */
const corrected = (apples = 12, reward?: number) => ({
  messages: [
    { role: 'user', content: `Tom has ${apples} apples. Tom finds 7 more.` },
    call('a', `${apples} - 7`),
    result('a', String(apples - 7)),
    call('b', `${apples} + 7`),
    result('b', String(apples + 7)),
    { role: 'assistant', content: `Answer: ${apples + 7}` },
  ],
  turn_rewards: [0, 1, 1],
  ...(reward === undefined ? {} : { reward }),
});
const clean = (apples: number) => {
  const { messages } = corrected(apples);
  return { messages: [messages[0], ...messages.slice(3)], turn_rewards: [1, 1] };
};
const unfinished = { ...corrected(), turn_rewards: [1, 1, 0] };

let files = 0;
function fileOf(...rows: readonly object[]): string {
  const file = join(folder, `rows-${files++}.jsonl`);
  writeFileSync(file, rows.map((one) => JSON.stringify(one)).join('\n'));
  return file;
}
const recordOf = async (row: object) => correctedTurns((await load(fileOf(row))).records[0] as StepRecord);

const WRONG =
  'Tom<tool_call>{"name": "calculator", "arguments": {"expression": "12 - 7"}}</tool_call><|eos|>';
const BETTER = WRONG.replace('-', '+');

describe('the tokens of a conversation', () => {
  const weighed = (record: StepRecord, mask = {}) => {
    const { ids, weights } = correctionTokenizer(tokenizer, { format: {}, mask })(record);
    // Runs of tokens of one weight.
    const runs: { weight: number; ids: number[] }[] = [];
    ids.forEach((id, t) => {
      const weight = weights[t] as number;
      if (runs.at(-1)?.weight === weight) runs.at(-1)?.ids.push(id);
      else runs.push({ weight, ids: [id] });
    });
    return runs.map(({ weight, ids: own }) => [weight, tokenizer.decode(own)]);
  };

  it('have weight 1 in right turns and 0 in wrong ones and in what came back', async () => {
    const record = await recordOf(corrected());
    expect(record.steps.map(({ kind }) => kind)).toEqual(['wrong', 'improvement', 'normal']);
    expect(weighed(record)).toEqual([
      [0, `Tom has 12 apples. Tom finds 7 more.\n${WRONG}5\n`],
      [1, BETTER],
      [0, '19\n'],
      [1, 'Answer: 19<|eos|>'],
    ]);
  });

  it('weigh as s3c.mask, wrong_step_weight and normalise say', async () => {
    const record = await recordOf(corrected());
    expect(weighed(record, { mask: 'none' })[1]).toEqual([1, WRONG]);
    expect(weighed(record, { wrong_step_weight: 0.25 })[1]).toEqual([0.25, WRONG]);
    const later = await recordOf({ ...corrected(), turn_rewards: [1, 0, 1] });
    expect(weighed(later, { mask: 'wrong_step_and_prompt' }).at(-1)).toEqual([1, 'Answer: 19<|eos|>']);
    expect(weighed(later, { mask: 'wrong_step_and_prompt' })).toHaveLength(2);
    const [, [weight] = []] = weighed(record, { normalise: 'example' });
    // 8 tokens of the call and 5 of the answer.
    expect(weight).toBeCloseTo(1 / 13, 6);
  });

  it('without its wrong turns are those of the right conversation (oversample)', async () => {
    const right = correctionVariant('oversample')(await recordOf(corrected()));
    expect(weighed(right)).toEqual(weighed(await recordOf(clean(12))));
  });
});

it('a conversation is learned unless its outcome or its last turn is wrong; kinds that a row has stay', async () => {
  expect(endsRight(await recordOf(corrected()))).toBe(true);
  expect(endsRight(await recordOf(corrected(12, 0)))).toBe(false);
  expect(endsRight(await recordOf(unfinished))).toBe(false);
  const own = (await recordOf(corrected())) as StepRecord;
  const kinds = own.steps.map((step) => ({ ...step, label: null }));
  expect(correctedTurns({ ...own, steps: kinds }).steps[0]?.kind).toBe('wrong');
});

describe('a run', () => {
  beforeAll(() => {
    vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  });
  const run = (name: string, sections: object, rows: readonly object[]) =>
    train(
      {
        method: 's3c',
        model: { base: { init: TINY }, tokenizer: 'word-problems-turns' },
        lora: 'none',
        data: { train: fileOf(...rows), max_length: 128, split: [8, 2, 2] },
        s3c: { num_train_epochs: 1, tokens_per_step: 256, ...sections },
        run: { device: 'cpu', threads: 1 },
      } as never,
      { output: join(folder, name) },
    );
  const rows = Array.from({ length: 12 }, (_, i) => [corrected(12 + i), clean(40 + i)]).flat();

  it('learns the right turns of its rows, and says which it leaves out', async () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    const { directory } = await run('learns', {}, [...rows, unfinished]);
    const steps = readFileSync(join(directory, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
      .filter(({ phase, loss }) => phase === 's3c' && loss !== undefined);
    expect(steps.length).toBeGreaterThan(1);
    for (const { loss } of steps) expect(Number.isFinite(loss)).toBe(true);
    expect(said.mock.calls.flat().join('\n')).toContain(
      '1 conversation with a wrong outcome or a wrong last turn: left out',
    );
    said.mockRestore();
  });

  it.each([
    [
      { variant: 'sham' },
      's3c.variant "sham" changes lines of solutions; set it to step, clean or oversample',
    ],
    [{ header: 'Step' }, 's3c.header announces lines of solutions; remove it'],
    [{ mask_separator: false }, 's3c.mask_separator false learns what ends a line; set it to true'],
  ])('refuses %j, which is of lines', async (sections, sentence) => {
    await expect(run(`refuses-${files}`, sections, rows)).rejects.toThrow(
      `the data have conversations whose turns are steps, and ${sentence}`,
    );
  });
});
