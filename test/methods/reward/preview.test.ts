// What `data preview` shows of a reward model: its sequences, and each label at the token at which it is read.
import { describe, expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { RewardRunConfig } from '../../../src/methods/reward/config.js';
import { rewardPreview } from '../../../src/methods/reward/data.js';
import type { StepRecord } from '../../../src/records/record.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { TINY } from './tiny-model.js';

const record = {
  problem: 'p',
  steps: [
    { text: 'ab', label: 1, kind: 'normal', score: 0.75 },
    { text: 'c', label: null, kind: 'normal' },
    { text: 'd', label: 0, kind: 'normal' },
    { text: 'e', label: 0, kind: 'normal', neutral: true },
  ],
  outcome: 0,
} as unknown as StepRecord;

function previewed(reward: object, more: object = {}) {
  const config = completeRunConfig({
    method: 'reward',
    model: { base: { init: TINY }, tokenizer: 'bytes' },
    data: { train: 'rows.jsonl', max_length: 64 },
    reward_model: { after_error: 'keep', ...reward },
    ...more,
  } as never) as RewardRunConfig;
  const samples = [...rewardPreview(config, byteTokenizer())(record, 'train')];
  return samples.map(({ title, sequence, labels }) => {
    const text = Buffer.from(sequence.ids).toString();
    const cells = labels!.flatMap((label, at) => (label === undefined ? [] : [[at, label]]));
    expect(labels).toHaveLength(sequence.ids.length);
    return [title, text, ...cells];
  });
}

describe('a reward model is previewed as it reads a solution', () => {
  it('with every label at the end of its step', () => {
    // "p\nab\nc\nd\ne\n": steps end at tokens 4, 6, 8 and 10; the second has no label.
    const whole = 'p\nab\nc\nd\ne\n';
    const title = 'solution of 4 steps';
    expect(previewed({})).toEqual([[title, whole, [4, '1'], [8, '0'], [10, '0']]]);
    const classes = [title, whole, [4, 'right'], [8, 'wrong'], [10, 'wrong']];
    expect(previewed({ head: 'classes' })).toEqual([classes]);
    const neutral = { data: { train: 'rows.jsonl', max_length: 64, neutral: 'class' } };
    expect(previewed({ head: 'classes' }, neutral)).toEqual([[...classes.slice(0, -1), [10, 'neutral']]]);
    expect(previewed({ soft_labels: true })).toEqual([[title, whole, [4, '0.75'], [8, '0'], [10, '0']]]);
  });

  it('with the labels that the settings leave', () => {
    expect(previewed({ after_error: 'drop' })).toEqual([
      ['solution of 4 steps', 'p\nab\nc\nd\n', [4, '1'], [8, '0']],
    ]);
    expect(previewed({ train_on_last_step_only: true })).toEqual([
      ['solution of 4 steps', 'p\nab\nc\nd\ne\n', [10, '0']],
    ]);
    expect(previewed({}, { data: { train: 'rows.jsonl', max_length: 9 } })).toEqual([
      [
        'solution of 4 steps, 1 label beyond the max length and not read',
        'p\nab\nc\nd\n',
        [4, '1'],
        [8, '0'],
      ],
    ]);
  });

  it('in the layout of TRL, at the last token of the separator', () => {
    const prompt = { template: 'trl', step_separator: '##' };
    // The start token, as TRL puts it there, is 256, and so a byte of 0.
    const start = '\0';
    expect(previewed({ head: 'classes' }, { prompt })).toEqual([
      ['solution of 4 steps', `${start}pab##c##d##e##`, [5, 'right'], [11, 'wrong'], [14, 'wrong']],
    ]);
  });

  it('with outcomes at the end', () => {
    const whole = 'p\nab\nc\nd\ne\n';
    expect(previewed({ type: 'orm' })).toEqual([['solution of 4 steps', whole, [10, 'outcome=0']]]);
    expect(previewed({ type: 'joint' })[0]!.slice(-1)).toEqual([[10, '0,outcome=0']]);
  });

  it('step by step, where each is read by itself or words are compared after a request', () => {
    expect(previewed({ input: 'prefixes' })).toEqual([
      ['step 1 of 4', 'p\nab\n', [4, '1']],
      ['step 3 of 4', 'p\nab\nc\nd\n', [8, '0']],
      ['step 4 of 4', 'p\nab\nc\nd\ne\n', [10, '0']],
    ]);
    const [first] = previewed({ head: 'verdict' }, { prompt: { template: 'compact' } });
    expect(first).toEqual(['step 1 of 4', 'p\nab\n?', [5, '+']]);
  });
});
