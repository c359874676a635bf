// Pre-tokenizers, normalizers and decoders do what those of Hugging Face's Rust library do.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { decoderOf } from '../../src/tokenizer/decoders.js';
import { normalizerOf } from '../../src/tokenizer/normalizers.js';
import { preTokenizerOf } from '../../src/tokenizer/pre-tokenizers.js';

type Cases<In, Out> = readonly (readonly [object, readonly (readonly [In, Out])[]])[];
const golden: {
  readonly preTokenizers: Cases<string, string[]>;
  readonly normalizers: Cases<string, string>;
  readonly decoders: Cases<string[], string>;
} = JSON.parse(readFileSync(new URL('../golden/tokenizer-parts.json', import.meta.url), 'utf8'));

describe('pre-tokenizers', () => {
  it.each(golden.preTokenizers)('%j', (json, cases) => {
    const cut = preTokenizerOf(json);
    expect(cases.map(([text]) => cut?.(text, true))).toEqual(cases.map(([, pieces]) => pieces));
  });

  it('put a space before the first text alone where the scheme says so', () => {
    const cut = preTokenizerOf({ type: 'Metaspace', prepend_scheme: 'first' });
    expect([cut?.('a', true), cut?.('a', false)]).toEqual([['▁a'], ['a']]);
  });
});

describe('normalizers', () => {
  it.each(golden.normalizers)('%j', (json, cases) => {
    const normalize = normalizerOf(json);
    expect(cases.map(([text]) => normalize?.(text))).toEqual(cases.map(([, text]) => text));
  });
});

describe('maps of characters', () => {
  const { map, precompiled }: { map: string; precompiled: [string, string][] } = JSON.parse(
    readFileSync(new URL('../golden/charsmap.json', import.meta.url), 'utf8'),
  );
  const part = { type: 'Precompiled', precompiled_charsmap: map };

  it('are applied as the library applies them', () => {
    const normalize = normalizerOf(part);
    expect(precompiled.map(([text]) => [text, normalize?.(text)])).toEqual(precompiled);
  });

  it.each([null, undefined, '', 'AAAA', 'CQAAAAE=', map.slice(0, 100)])(
    'are refused where they are none: %j',
    (bad) => {
      expect(() => normalizerOf({ ...part, precompiled_charsmap: bad })).toThrow(
        'precompiled_charsmap: expected the base64 of a compiled map of characters',
      );
    },
  );
});

describe('decoders', () => {
  it.each(golden.decoders)('%j', (json, cases) => {
    const decode = decoderOf(json);
    expect(cases.map(([tokens]) => decode?.(tokens))).toEqual(cases.map(([, text]) => text));
  });
});

it.each([
  [() => preTokenizerOf({ type: 'UnicodeScripts' }), 'the pre-tokenizer "UnicodeScripts" is not known'],
  [() => normalizerOf({ type: 'Nmt' }), 'the normalizer "Nmt" is not known'],
  [() => decoderOf({ type: 'CTC' }), 'the decoder "CTC" is not known'],
  [() => preTokenizerOf({ type: 'Metaspace', prepend_scheme: 'last' }), 'prepend_scheme last is not known'],
  [() => preTokenizerOf({ type: 'Split', pattern: {}, behavior: 'Isolated' }), 'neither Regex nor String'],
  [() => preTokenizerOf({ type: 'Punctuation', behavior: 'Kept' }), 'the behavior "Kept" is not known'],
])('refuses what it does not know: %s', (build, sentence) => {
  expect(build).toThrow(sentence);
});
