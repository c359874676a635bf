// The inputs of the sampling op: keys that belong to a sample and not to its place, and no input without a setting.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type SamplingOptions, samplingSettings } from '../../../src/generate/options.js';
import { choiceTrie } from '../../../src/generate/rows/choices.js';
import { type SampledRow, sampleInputs, sampleKey } from '../../../src/generate/step/sampling-inputs.js';

const settingsOf = (options: SamplingOptions) =>
  samplingSettings(options, { vocabSize: 320, eosTokenIds: [2] }, 1);

const rowOf = (options: SamplingOptions, row: Partial<SampledRow> = {}): SampledRow => ({
  settings: settingsOf(options),
  key: [5, 6],
  position: 3,
  drawn: 0,
  choice: undefined,
  ...row,
});

describe('keys', () => {
  it('differ for every seed, round, prompt and sample', () => {
    const keys = new Set<string>();
    for (const seed of [0, 1, 2 ** 40])
      for (const iteration of [0, 1])
        for (const prompt of [0, 1, 2])
          for (const sample of [0, 1, 2]) keys.add(sampleKey({ seed, iteration }, prompt, sample).join());
    expect(keys.size).toBe(3 * 2 * 3 * 3);
  });

  it('are in the inputs, with the position as counter', () => {
    const { keys } = sampleInputs([rowOf({}), rowOf({}, { key: [2 ** 31, 8], position: 9 })]);
    expect([...keys]).toEqual([5, 6, 3, 0, -(2 ** 31), 8, 9, 0]);
  });
});

describe('inputs', () => {
  it('of plain rows are only keys and temperatures', () => {
    expect(sampleInputs([rowOf({ temperature: 0.5 }), rowOf({})])).toEqual({
      keys: Int32Array.of(5, 6, 3, 0, 5, 6, 3, 0),
      temperature: Float32Array.of(0.5, 1),
      topK: undefined,
      topP: undefined,
      minP: undefined,
      bias: undefined,
      allowed: undefined,
    });
  });

  it('contain the filters of every row if one row has any', () => {
    const { topK, topP, minP } = sampleInputs([
      rowOf({ topK: 4 }),
      rowOf({ topP: 0.5 }),
      rowOf({ minP: 0.25 }),
    ]);
    expect([topK, topP, minP]).toEqual([
      Int32Array.of(4, 0, 0),
      Float32Array.of(1, 0.5, 1),
      Float32Array.of(0, 0, 0.25),
    ]);
  });

  it('ban the stop tokens of a row below minTokens, and contain each bias once', () => {
    const long = { stop: [9], minTokens: 2, logitBias: { 3: 1.5, 9: 4 } };
    const { bias } = sampleInputs([rowOf(long), rowOf({}), rowOf(long, { drawn: 2 })]);
    expect(bias).toEqual({
      offsets: Int32Array.of(0, 3, 3, 5),
      tokens: Int32Array.of(3, 2, 9, 3, 9),
      values: Float32Array.of(1.5, -Infinity, -Infinity, 1.5, 4),
    });
  });

  it('allow only the next tokens of the choices of a row', () => {
    const choice = choiceTrie([[8, 1], [4], [8, 0]]);
    const { allowed } = sampleInputs([
      rowOf({}),
      rowOf({}, { choice }),
      rowOf({}, { choice: choice.next.get(8)! }),
    ]);
    expect(allowed).toEqual({ offsets: Int32Array.of(0, 0, 2, 4), tokens: Int32Array.of(4, 8, 0, 1) });
  });
});

describe('choices', () => {
  const answers = fc
    .uniqueArray(fc.array(fc.nat(3), { minLength: 1, maxLength: 4 }), {
      minLength: 1,
      maxLength: 8,
      selector: (answer) => answer.join(),
    })
    .filter((list) => {
      const texts = list.map((answer) => `${answer.join()},`);
      return !texts.some((a) => texts.some((b) => a !== b && b.startsWith(a)));
    });

  it('lead exactly to the given answers', () => {
    fc.assert(
      fc.property(answers, (given) => {
        const reached: number[][] = [];
        const walk = (node: ReturnType<typeof choiceTrie>, path: readonly number[]) => {
          if (node.next.size === 0) reached.push([...path]);
          for (const [token, next] of node.next) walk(next, [...path, token]);
        };
        walk(choiceTrie(given), []);
        const texts = (list: readonly (readonly number[])[]) => list.map((answer) => answer.join()).sort();
        expect(texts(reached)).toEqual(texts(given));
      }),
    );
  });
});
