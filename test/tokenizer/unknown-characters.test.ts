// Byte-pair encoding of characters that no token spells; the ids are those of tokenizers 0.23.3.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const TOKENS = ['<unk>', '<0xC3>', '<0xA9>', 'a', 'b', 'c', 'd', '\u0120'];
const MERGES = ['a b', 'ab c', 'c d', 'abc d', 'a b</w>'];
const WORDS = [...TOKENS, ...MERGES.map((pair) => pair.replace(' ', '')).slice(0, 4), 'b</w>', 'ab</w>'];

async function open(model: object, parts: object = {}) {
  const directory = temporaryDirectory();
  const tokenizer = {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: null,
    decoder: null,
    model: { vocab: Object.fromEntries(WORDS.map((token, id) => [token, id])), merges: MERGES, ...model },
    ...parts,
  };
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(join(directory, 'tokenizer_config.json'), '{}');
  return loadTokenizer(directory);
}

it.each([
  [null, false, false, null, [[8], [4, 5], [8]], [9, 9, 9, 9, 9, 9, 9, 11]],
  [null, false, false, '</w>', [[13], [4], [13]], [9, 9, 9, 9, 9, 9, 9, 9]],
  [null, false, true, null, [[8], [4, 5], [8]], [9, 9, 9, 9, 9, 9, 9, 11]],
  [null, false, true, '</w>', [[13], [4], [13]], [9, 9, 9, 9, 9, 9, 9, 9]],
  [null, true, false, null, [[8], [1, 2, 4, 5], [8]], [9, 9, 9, 9, 9, 9, 9, 11]],
  [null, true, false, '</w>', [[13], [1, 2, 4], [13]], [9, 9, 9, 9, 9, 9, 9, 9]],
  [null, true, true, null, [[8], [1, 2, 4, 5], [8]], [9, 9, 9, 9, 9, 9, 9, 11]],
  [null, true, true, '</w>', [[13], [1, 2, 4], [13]], [9, 9, 9, 9, 9, 9, 9, 9]],
  [
    '<unk>',
    false,
    false,
    null,
    [
      [3, 0, 4],
      [0, 0, 4, 0, 0, 5],
      [0, 0, 8],
    ],
    [0, 5, 8, 0, 5, 8, 0, 10],
  ],
  [
    '<unk>',
    false,
    false,
    '</w>',
    [
      [3, 0, 12],
      [0, 0, 4, 0, 0, 0],
      [0, 0, 13],
    ],
    [5, 8, 0, 5, 8, 0, 5, 0],
  ],
  [
    '<unk>',
    false,
    true,
    null,
    [
      [3, 0, 4],
      [0, 4, 0, 0, 5],
      [0, 8],
    ],
    [0, 5, 8, 0, 5, 8, 0, 10],
  ],
  [
    '<unk>',
    false,
    true,
    '</w>',
    [
      [3, 0, 12],
      [0, 4, 0, 0],
      [0, 13],
    ],
    [5, 8, 0, 5, 8, 0, 5, 0],
  ],
  [
    '<unk>',
    true,
    false,
    null,
    [
      [3, 0, 4],
      [1, 2, 0, 4, 0, 0, 5],
      [0, 0, 8],
    ],
    [0, 5, 8, 0, 5, 8, 0, 10],
  ],
  [
    '<unk>',
    true,
    false,
    '</w>',
    [
      [3, 0, 12],
      [1, 2, 0, 4, 0, 0, 0],
      [0, 0, 13],
    ],
    [5, 8, 0, 5, 8, 0, 5, 0],
  ],
  [
    '<unk>',
    true,
    true,
    null,
    [
      [3, 0, 4],
      [1, 2, 0, 4, 0, 0, 5],
      [0, 8],
    ],
    [0, 5, 8, 0, 5, 8, 0, 10],
  ],
  [
    '<unk>',
    true,
    true,
    '</w>',
    [
      [3, 0, 12],
      [1, 2, 0, 4, 0, 0],
      [0, 13],
    ],
    [5, 8, 0, 5, 8, 0, 5, 0],
  ],
] as [string | null, boolean, boolean, string | null, number[][], number[]][])(
  'are as in the Rust library: unknown %s, bytes %s, fused %s, end of words %s',
  async (unk_token, byte_fallback, fuse_unk, end_of_word_suffix, short, long) => {
    const model = { unk_token, byte_fallback, fuse_unk, end_of_word_suffix };
    // Old files do not name the type.
    for (const tokenizer of [await open({ type: 'BPE', ...model }), await open(model)]) {
      const read = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
      expect(['aXb', 'X\u00e9bY Zc', 'XYab'].map(read)).toEqual(short);
      expect(read(`${'abcd'.repeat(80)}X${'abXc'.repeat(10)}d`).slice(-8)).toEqual(long);
    }
  },
);

it('are refused where the unknown token is none', async () => {
  const tokenizer = open({ type: 'BPE', unk_token: '[UNK]', vocab: { a: 0 }, merges: [] });
  await expect(tokenizer).rejects.toThrow('nor for its \'model.unk_token\' "[UNK]"');
});

it('a model without type, merges and prefix is refused', async () => {
  await expect(open({ merges: undefined })).rejects.toThrow("does not say 'model.type'");
});

const METASPACE = { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true };

it('are unknown where an added token of whole words has their text', async () => {
  const vocab = [
    ['<unk>', 0],
    ['\u2581', -2],
    ['a', -3],
    ['o', -4.1],
    ['ao', -7.1],
  ];
  const added = { id: 5, content: '\u00e9', single_word: true, lstrip: false, rstrip: false };
  const tokenizer = await open(
    { type: 'Unigram', vocab, unk_id: 0, merges: undefined },
    { pre_tokenizer: METASPACE, added_tokens: [{ ...added, normalized: false, special: false }] },
  );
  const read = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  expect(['\u00e9 a\u00e9', 'a\u00e9o \u00e9'].map(read)).toEqual([
    [5, 1, 2, 0],
    [1, 2, 0, 3, 1, 5],
  ]);
});

it.each([
  [
    { type: 'Strip', strip_left: true, strip_right: true },
    [
      [3, 1],
      [1, 1],
      [1, 3],
      [0, 2, 1],
      [3, 2],
    ],
  ],
  [{ type: 'Replace', pattern: { String: 'b' }, content: '' }, [[3, 1], [3, 1], [0, 3, 3], [1], [3]]],
])('the text after what a normaliser leaves out does not begin the text: %o', async (normalizer, ids) => {
  const tokenizer = await open(
    { type: 'BPE', vocab: { '\u2581': 0, a: 1, b: 2, '\u2581a': 3 }, merges: ['\u2581 a'] },
    { normalizer, pre_tokenizer: { ...METASPACE, prepend_scheme: 'first' } },
  );
  const texts = ['aa', ' aa', '\n a a', 'ba', 'ab'];
  expect(texts.map((text) => tokenizer.encode(text, { addSpecialTokens: false }))).toEqual(ids);
});

it('tokens at both ends stand there where the normaliser leaves nothing of an a', async () => {
  const tokenizer = await open(
    { type: 'BPE', vocab: { b: 0, '</s>': 1, '<s>': 2, c: 3, '.': 4 }, merges: [] },
    {
      normalizer: { type: 'Replace', pattern: { String: 'a' }, content: '' },
      post_processor: {
        ...{ type: 'RobertaProcessing', sep: ['</s>', 1], cls: ['<s>', 2] },
        ...{ trim_offsets: false, add_prefix_space: false },
      },
    },
  );
  expect(tokenizer.encode('bac')).toEqual([2, 0, 3, 1]);
});
