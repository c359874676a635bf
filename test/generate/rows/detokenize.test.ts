// Streamed text: the pieces together are the text of all tokens. None has half a character or part of a stop string.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Detokenizer, detokenize } from '../../../src/generate/rows/detokenize.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import { sharedPath } from '../../shared.js';

const bytes = byteTokenizer();

function piecesOf(tokens: readonly number[], stop: readonly string[] = []) {
  const detokenizer = new Detokenizer(bytes, { stop });
  return [...tokens.map((token) => detokenizer.push(token)), detokenizer.end()];
}

describe('Detokenizer', () => {
  it('returns the whole text in pieces of whole characters', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 20 }), (text) => {
        const pieces = piecesOf(bytes.encode(text));
        expect(pieces.join('')).toBe(text);
        if (!text.includes('\ufffd')) expect(pieces.join('')).not.toContain('\ufffd');
      }),
    );
  });

  it('returns the text that the tokenizer decodes, also for invalid UTF-8', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(258), { maxLength: 40 }), (tokens) => {
        const whole = detokenize(bytes, tokens, { skipSpecialTokens: true });
        const known = tokens.filter((token) => token < 256);
        expect(whole).toBe(Buffer.from(known).toString('utf8'));
      }),
      { numRuns: 500 },
    );
  });

  it('ends before a stop string, and never returns a part of it', () => {
    const letters = fc.constantFrom('a', 'b', 'é');
    fc.assert(
      fc.property(
        fc.string({ unit: letters, maxLength: 30 }),
        fc.array(fc.string({ unit: letters, minLength: 1, maxLength: 4 }), { maxLength: 3 }),
        (text, stop) => {
          const detokenizer = new Detokenizer(bytes, { stop });
          let shown = '';
          for (const token of bytes.encode(text)) {
            shown += detokenizer.push(token);
            for (const string of stop) expect(shown).not.toContain(string);
          }
          shown += detokenizer.end();
          expect(text.startsWith(shown)).toBe(true);
          if (!stop.some((string) => text.includes(string))) expect(shown).toBe(text);
          else expect(stop.some((string) => text.slice(shown.length).startsWith(string))).toBe(true);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('holds back an unfinished character, and returns it at the end', () => {
    expect(piecesOf([0x61, 0xe2, 0x82])).toEqual(['a', '', '', '\ufffd']);
    expect(piecesOf([0xe2, 0x82, 0xac])).toEqual(['', '', '€', '']);
    expect(piecesOf([0xe2, 0x61])).toEqual(['', '\ufffda', '']);
  });

  it('keeps a byte order mark', () => {
    expect(detokenize(bytes, [0xef, 0xbb, 0xbf, 0x61])).toBe('\u{feff}a');
  });

  it('leaves out special tokens by default', () => {
    expect(detokenize(bytes, [0x61, 257])).toBe('a');
    expect(detokenize(bytes, [0x61, 257, 0x62], { skipSpecialTokens: false })).toBe('a<|eos|>b');
  });

  it('adds nothing for a token that the tokenizer does not have', () => {
    expect(detokenize(bytes, [0x61, 259, 0x62])).toBe('ab');
  });

  it('adds nothing after a stop string', () => {
    expect(detokenize(bytes, bytes.encode('one. two. three'), { stop: ['. '] })).toBe('one');
    expect(piecesOf(bytes.encode('a\n\nb'), ['\n\n'])).toEqual(['a', '', '', '', '']);
  });
});

describe('tokens that have the last digit of a number first', () => {
  const tokenizer = {
    reversesDigits: true,
    tokenBytes: (token: number) => bytes.tokenBytes(token),
    isSpecial: (token: number) => bytes.isSpecial(token),
  };
  const run = (text: string, stop: string, from: number) => {
    const detokenizer = new Detokenizer(tokenizer, { stop: [stop] });
    const shown = bytes.encode(text).map((token, i) => detokenizer.push(token, i >= from));
    return { text: shown.join('') + detokenizer.end(), stop: detokenizer.stoppedBy };
  };

  it('give the number as it is read, once it is whole', () => {
    expect(run('=321+', '!', 0)).toEqual({ text: '=123+', stop: undefined });
    expect(run('=321', '!', 0)).toEqual({ text: '=123', stop: undefined });
  });

  it('stop within a number only at tokens that may stop', () => {
    // The text is 123: its "1" comes with token 3, its "2" with token 2.
    expect(run('=321+', '1', 0)).toEqual({ text: '=', stop: '1' });
    expect(run('=321+', '1', 4)).toEqual({ text: '=123+', stop: undefined });
    expect(run('=321+', '12', 2)).toEqual({ text: '=', stop: '12' });
    expect(run('=321', '3', 2)).toEqual({ text: '=123', stop: undefined });
    expect(run('=321', '3', 1)).toEqual({ text: '=12', stop: '3' });
  });
});

describe.each(['prepend', 'metaspace'])('tokens of a %s tokenizer', (name) => {
  it('keep the space that a text loses at its beginning', async () => {
    const tokenizer = await loadTokenizer(
      join(fileURLToPath(new URL('../../tokenizer/files', import.meta.url)), name),
    );
    const first = tokenizer.encode('7+5', { addSpecialTokens: false });
    const whole = [...first, ...tokenizer.encode('=12', { addSpecialTokens: false })];
    expect(detokenize(tokenizer, whole)).toBe(' 7+5 =12');
    expect(tokenizer.decode(whole)).toBe('7+5 =12');
    expect(detokenize(tokenizer, [1, 99_999, ...whole])).toBe(' 7+5 =12');
    expect(tokenizer.isSpecial(1)).toBe(true);
  });
});

const qwen = sharedPath('data/tokenizers/qwen2_5');

describe.skipIf(qwen === undefined)('the Qwen2.5 tokenizer (needs the shared data)', async () => {
  // The body of a skipped suite runs too.
  const tokenizer = qwen === undefined ? bytes : await loadTokenizer(qwen);

  it('returns its own decoding of any tokens, in one piece or in many', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(tokenizer.vocabSize - 1), { minLength: 1, maxLength: 20 }), (tokens) => {
        const plain = tokens.filter((token) => token < 151_643);
        expect(detokenize(tokenizer, plain)).toBe(plain.length > 0 ? tokenizer.decode(plain) : '');
        const kept = detokenize(tokenizer, tokens, { skipSpecialTokens: false });
        if (!kept.includes('\ufffd')) expect(kept).toBe(tokenizer.decode(tokens));
      }),
    );
  });

  it('returns any encoded text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 20 }), (text) => {
        const normal = text.normalize('NFC');
        expect(detokenize(tokenizer, tokenizer.encode(normal), { skipSpecialTokens: false })).toBe(normal);
      }),
    );
  });
});
