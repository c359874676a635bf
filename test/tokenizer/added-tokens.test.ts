// Added tokens: the ids are those of the Rust library (PyPI's tokenizers 0.23.3), also where a normaliser comes first.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const words = JSON.parse(
  readFileSync(new URL('files/single-word.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, { readonly tokenizer: object; readonly texts: readonly [string, number[]][] }>>;

it.each(Object.entries(words))('%s: match whole words alone', async (_, { tokenizer, texts }) => {
  const directory = temporaryDirectory();
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  const loaded = await loadTokenizer(directory);
  expect(texts.map(([text]) => [text, loaded.encode(text)])).toEqual(texts);
  // The text stays whole where the vocabulary has all its characters, and the normaliser leaves them.
  for (const [text] of texts.filter(([each]) => !/[<A-Z]/.test(each)))
    expect(Buffer.concat(loaded.encode(text).map((id) => loaded.tokenBytes(id))).toString()).toBe(text);
});

interface Golden {
  readonly vocab: Readonly<Record<string, number>>;
  readonly texts: readonly string[];
  readonly cases: Readonly<
    Record<string, { readonly tokenizer: { readonly model: object }; readonly ids: readonly number[][] }>
  >;
}

describe('added tokens', () => {
  const { vocab, texts, cases } = JSON.parse(readFileSync(goldenPath('added-tokens.json'), 'utf8')) as Golden;
  it.each(Object.entries(cases))('%s: are found as the Rust library finds them', async (_, golden) => {
    const directory = temporaryDirectory();
    const tokenizer = { ...golden.tokenizer, model: { ...golden.tokenizer.model, vocab } };
    writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
    const loaded = await loadTokenizer(directory);
    const found = texts.map((text) => loaded.encode(text, { addSpecialTokens: false }));
    expect(found).toEqual(golden.ids);
  });
});

it('reads both ids of two added tokens with one text', async () => {
  const directory = temporaryDirectory();
  const token = {
    content: '<x>',
    special: true,
    normalized: false,
    single_word: false,
    lstrip: false,
    rstrip: false,
  };
  const parts = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  const tokenizer = {
    model: { type: 'BPE', vocab: { a: 0, b: 1 }, merges: [] },
    added_tokens: [3, 2].map((id) => ({ id, ...token })),
    ...parts,
  };
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  const loaded = await loadTokenizer(directory);
  expect(loaded.vocabSize).toBe(4);
  expect([2, 3].map((id) => loaded.decode([id]))).toEqual(['<x>', '<x>']);
  expect(loaded.encode('a<x>')).toEqual([0, 2]);
});
