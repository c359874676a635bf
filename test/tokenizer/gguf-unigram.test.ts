// SentencePiece's unigrams from the metadata of a GGUF file, against the tokenizers library.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ggufTokenizer } from '../../src/tokenizer/gguf-tokenizer.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { normalizerOf } from '../../src/tokenizer/normalizers.js';
import type { MetadataValue } from '../../src/weights/gguf/file.js';
import { Metadata } from '../../src/weights/gguf/metadata.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const golden = goldenDirectory('unigram');
const read = (name: string) => JSON.parse(readFileSync(join(golden, name), 'utf8'));
const vocab = read('tokenizer.json').model.vocab as [string, number][];
const charsmap = JSON.parse(readFileSync(new URL('../golden/charsmap.json', import.meta.url), 'utf8'));
// The map makes a tab a space, which this tokenizer's NFKC does not.
const cases = (
  read('expected.json') as { text: string; ids: number[]; bare: number[]; decoded: string }[]
).filter(({ text }) => !text.includes('\t'));

/** As llama.cpp writes them; kinds: control, unknown, normal. */
const metadata = (change: Readonly<Record<string, MetadataValue | undefined>> = {}) =>
  new Metadata(
    'model.gguf',
    new Map<string, MetadataValue>(
      Object.entries({
        'general.architecture': 'llama',
        'tokenizer.ggml.model': 't5',
        'tokenizer.ggml.tokens': vocab.map(([token]) => token),
        'tokenizer.ggml.scores': vocab.map(([, score]) => score),
        'tokenizer.ggml.token_type': vocab.map((_, id) => (id < 3 ? 3 : id === 3 ? 2 : 1)),
        'tokenizer.ggml.unknown_token_id': 3,
        'tokenizer.ggml.bos_token_id': 1,
        'tokenizer.ggml.eos_token_id': 2,
        'tokenizer.ggml.add_bos_token': true,
        'tokenizer.ggml.remove_extra_whitespaces': true,
        'tokenizer.ggml.precompiled_charsmap': [...Buffer.from(charsmap.map, 'base64')],
        ...change,
      }).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
    ),
  );

async function tokenizerOf(of: Metadata) {
  const directory = temporaryDirectory();
  const { tokenizer, config } = ggufTokenizer(of);
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(join(directory, 'tokenizer_config.json'), JSON.stringify(config));
  return loadTokenizer(directory);
}

test.each(cases)('encodes and decodes $text', async ({ text, ids, bare, decoded }) => {
  const tokenizer = await tokenizerOf(metadata());
  expect(tokenizer.encode(text)).toEqual(ids);
  expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(bare);
  expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(decoded);
});

test('keeps spaces and characters where nothing says otherwise, and puts no space before a text that is to have none', async () => {
  const plain = await tokenizerOf(
    metadata({
      'tokenizer.ggml.remove_extra_whitespaces': undefined,
      'tokenizer.ggml.precompiled_charsmap': undefined,
    }),
  );
  const bare = { addSpecialTokens: false };
  const spaces = (ids: readonly number[]) => ids.filter((id) => vocab[id]?.[0] === '▁').length;
  const squeezed = await tokenizerOf(metadata());
  expect(spaces(plain.encode('a  a', bare))).toBe(1 + spaces(squeezed.encode('a  a', bare)));
  // llama-cpp-python 0.3.36, of such a file.
  expect(plain.encode('  add  both sides ', bare)).toEqual([
    ...[4, 4, 4, 6, 13, 13, 4, 4, 14, 10, 37, 4, 7, 22, 7, 4],
  ]);
  const joined = await tokenizerOf(metadata({ 'tokenizer.ggml.add_space_prefix': false }));
  expect(joined.encode('a', bare)).toEqual([vocab.findIndex(([token]) => token === 'a')]);
});

test.each([true, false])(
  'replaces characters as SentencePiece does (extra spaces out: %s)',
  async (squeezes) => {
    const { tokenizer } = ggufTokenizer(
      metadata({
        'tokenizer.ggml.remove_extra_whitespaces': squeezes,
        'tokenizer.ggml.add_space_prefix': false,
      }),
    );
    const normalize = normalizerOf(tokenizer.normalizer);
    const expected = charsmap[squeezes ? 'squeezed' : 'kept'] as [string, string][];
    expect(expected.map(([text]) => [text, normalize?.(text).replaceAll('▁', ' ')])).toEqual(expected);
  },
);

test('refuses a map of characters that is none', async () => {
  await expect(
    tokenizerOf(metadata({ 'tokenizer.ggml.precompiled_charsmap': [9, 0, 0, 0, 1] })),
  ).rejects.toThrow('precompiled_charsmap: expected the base64 of a compiled map of characters');
});

test('refuses scores that are not one for each token', () => {
  expect(() => ggufTokenizer(metadata({ 'tokenizer.ggml.scores': [0, 1] }))).toThrow(
    `model.gguf: tokenizer.ggml.scores: expected a score for each of the ${vocab.length} tokens`,
  );
});
