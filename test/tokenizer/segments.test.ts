import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { decodeSpan, type Segment, segmentTokenizer } from '../../src/tokenizer/segments.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { sharedPath } from '../shared.js';

const files = fileURLToPath(new URL('files', import.meta.url));
const qwen = sharedPath('data/tokenizers/qwen2_5');
const tokenizers: [string, Tokenizer][] = [
  ['byte', byteTokenizer()],
  ['prepend', await loadTokenizer(join(files, 'prepend'))],
  ['metaspace', await loadTokenizer(join(files, 'metaspace'))],
];
if (qwen !== undefined) tokenizers.push(['qwen2.5', await loadTokenizer(qwen)]);

/** Segments of a prompt, steps and a verdict. Texts are in composed form (NFC), to which tokenizers may normalise. */
const segmentLists = fc
  .array(fc.tuple(fc.string({ unit: 'grapheme-composite', minLength: 1, maxLength: 30 }), fc.boolean()), {
    minLength: 1,
    maxLength: 6,
  })
  .map((parts) =>
    parts.map(([text, train], i): Segment => {
      const normal = text.normalize('NFC').replaceAll('▁', ' ');
      return i === 0
        ? { text: `P: ${normal}`, role: 'prompt', train: false }
        : { text: normal, role: 'step', step: i - 1, train };
    }),
  );

for (const [name, tokenizer] of tokenizers) {
  describe(`segments with the ${name} tokenizer`, () => {
    const tokenize = segmentTokenizer(tokenizer);

    it('spans tile the sequence, decode to their text, and the mask is that of the segments', () => {
      fc.assert(
        fc.property(segmentLists, (segments) => {
          const { ids, lossMask, spans } = tokenize(segments, { specialTokens: 'none' });
          expect(spans.map((span) => span.start)).toEqual([0, ...spans.slice(0, -1).map((span) => span.end)]);
          expect(spans.at(-1)?.end).toBe(ids.length);
          for (const [i, { start, end }] of spans.entries()) {
            expect(decodeSpan(tokenizer, ids, start, end)).toBe(segments[i]?.text);
            expect(
              [...lossMask.subarray(start, end)].every((bit) => bit === Number(segments[i]?.train)),
            ).toBe(true);
          }
          expect(tokenizer.decode(ids)).toBe(segments.map((segment) => segment.text).join(''));
        }),
        { numRuns: 60 },
      );
    });

    it('gives a single segment the tokens of its text, and a repeated text the same tokens', () => {
      const text = 'So the sum of the possible values of x is 0.';
      const one = tokenize([{ text, role: 'answer', train: true }]);
      expect([...one.ids]).toEqual(tokenizer.encode(text));
      expect([...one.lossMask]).toEqual(one.ids.length > 0 ? [0, ...Array(one.ids.length - 1).fill(1)] : []);
      expect(tokenize([{ text, role: 'answer', train: true }])).toEqual(one);
    });
  });
}

describe('segments', () => {
  it('neighbouring segments of one step form one span with its label', () => {
    const { steps, lossMask } = segmentTokenizer(byteTokenizer())([
      { text: '7;+5\n', role: 'prompt', train: false },
      { text: '7+5=', role: 'step', step: 0, label: 1, train: false },
      { text: '12\n', role: 'step', step: 0, label: 1, train: true },
      { text: '?', role: 'step', step: 1, train: false },
    ]);
    expect(steps).toEqual([
      { step: 0, start: 5, end: 12, label: 1 },
      { step: 1, start: 12, end: 13, label: null },
    ]);
    expect([...lossMask].join('')).toBe('0000000001110');
  });

  it('a step that comes back later is refused', () => {
    const step = (n: number): Segment => ({ text: 'x', role: 'step', step: n, train: true });
    expect(() => segmentTokenizer(byteTokenizer())([step(0), step(1), step(0)])).toThrow(
      'the segments of step 0 do not follow one another',
    );
  });

  it('the start token is added once, also if the text already starts with it', async () => {
    const tokenizer = await loadTokenizer(join(files, 'prepend'));
    const tokenize = segmentTokenizer(tokenizer);
    const bos = (text: string, specialTokens: 'both' | 'start' | 'none' = 'both'): number =>
      tokenize(
        [
          { text, role: 'prompt', train: false },
          { text: 'y', role: 'answer', train: true },
        ],
        { specialTokens },
      ).ids.filter((id) => id === tokenizer.bosId).length;
    expect(bos('x')).toBe(1);
    expect(bos('<s>x')).toBe(1);
    expect(bos('x', 'none')).toBe(0);
    expect(bos(tokenizer.applyChatTemplate([{ role: 'user', content: 'x' }]))).toBe(1);
  });

  it('a repeated text is tokenised once, until newer texts replace it in the cache', () => {
    const encoded: string[] = [];
    const counting = Object.create(byteTokenizer(), {
      encode: { value: (text: string) => encoded.push(text) && [...Buffer.from(text)] },
    }) as Tokenizer;
    const tokenize = segmentTokenizer(counting, { cacheCharacters: 10 });
    const use = (...texts: string[]): void => {
      for (const text of texts)
        tokenize([
          { text: '', role: 'prompt', train: false },
          { text, role: 'answer', train: true },
        ]);
    };
    use('aaa', 'aaa', 'bbb', 'aaa', 'ccc', 'ddd');
    expect(encoded).toEqual(['aaa', 'bbb', 'ccc', 'ddd']);
    use('ddd', 'ccc', 'ddd');
    expect(encoded).toEqual(['aaa', 'bbb', 'ccc', 'ddd']);
    use('aaa');
    expect(encoded).toHaveLength(5);
  });

  it('a cache too small for any text gives the same tokens', () => {
    const segments: Segment[] = ['ab', 'cd', 'ab'].map((text, step) => ({
      text,
      role: 'step',
      step,
      train: true,
    }));
    const small = segmentTokenizer(byteTokenizer(), { cacheCharacters: 1 });
    expect(small(segments)).toEqual(segmentTokenizer(byteTokenizer())(segments));
  });
});
