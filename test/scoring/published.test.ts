// Published reward models under one name: tiny twins in their layouts, against what the models' own programs compute with torch.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { openDevice } from '../../src/runtime/device.js';
import { openScorer } from '../../src/scoring/open.js';
import type { Solution } from '../../src/scoring/scorer.js';
import { changedModel } from '../models/changed-model.js';
import { GOLDEN, TWINS, type Twin, twin } from './twins.js';

const { solutions, scores } = JSON.parse(readFileSync(new URL('scores.json', GOLDEN), 'utf8')) as {
  readonly solutions: readonly Solution[];
  readonly scores: Readonly<Record<string, readonly (readonly number[])[]>>;
};

const device = openDevice('cpu', { threads: 1 });
afterAll(() => device.dispose());

describe('a published reward model in a directory', () => {
  it.each(TWINS)('%s scores as its own program does', async (...row) => {
    const [kind] = row;
    const scorer = await openScorer(device, await twin(row), { dtype: 'f32' });
    const found = (await scorer.score(solutions)) ?? [];
    const wanted = scores[kind] as readonly (readonly number[])[];
    const apart = wanted.flatMap((own, i) => {
      const { outcome, scores } = found[i]!;
      expect(scores).toHaveLength(solutions[i]!.steps.length);
      return own.map((score, step) => Math.abs(score - ((outcome ?? scores[step]) as number)));
    });
    expect(apart).toHaveLength(kind === 'qwen_rm' ? 2 : 5);
    expect(Math.max(...apart)).toBeLessThan(2e-5);
    expect(scorer).toMatchObject(
      kind === 'qwen_rm' ? { unit: 'outcome', scale: 'reward' } : { unit: 'step', scale: 'probability' },
    );
    // Alone, and cut off: what stands before is read alike.
    const [, last] = solutions as [Solution, Solution];
    expect((await scorer.score([last]))?.[0]?.scores).toEqual(found[1]?.scores);
    scorer.dispose();
  });

  it('gives no score to a solution that holds its mark, nor to steps beyond the longest sequence', async () => {
    const directory = await twin(TWINS[0] as Twin);
    const [, { problem, steps }] = solutions as [Solution, Solution];
    const whole = await openScorer(device, directory, { dtype: 'f32' });
    const [read] = (await whole.score([{ problem, steps }])) ?? [];
    whole.dispose();
    const maxLength = (read?.tokens as number) - 1;
    const scorer = await openScorer(device, directory, { dtype: 'f32', maxLength });
    const marked = { problem, steps: ['2 + 3 = 6<extra_0>', '6'] };
    const [first, second] = (await scorer.score([marked, { problem, steps }])) ?? [];
    expect(first?.scores).toEqual([null, null]);
    expect(second?.scores.map((score) => score === null)).toEqual([false, false, true]);
    scorer.dispose();
  });

  it('under any name is what its steptrain.json says', async () => {
    const [kind, ...rest] = TWINS.find(([kind]) => kind === 'math_shepherd') as Twin;
    const directory = await twin([kind, rest[0], rest[1], 'models/mine', rest[3], rest[4]]);
    const judge = { kind: 'published', layout: 'math_shepherd', max_length: 512, threshold: 'greedy' };
    writeFileSync(join(directory, 'steptrain.json'), JSON.stringify({ method: 'published', judge }));
    const scorer = await openScorer(device, directory, { dtype: 'f32' });
    const found = (await scorer.score(solutions)) ?? [];
    expect(found[1]?.scores[0]).toBeCloseTo(scores.math_shepherd?.[1]?.[0] as number, 4);
    scorer.dispose();
  });

  it('that is another model is refused with what is known', async () => {
    const directory = await changedModel('qwen2');
    copyFileSync(new URL('chatml/tokenizer.json', GOLDEN), join(directory, 'tokenizer.json'));
    await expect(openScorer(device, directory)).rejects.toThrow(/published reward model/);
  });
});
