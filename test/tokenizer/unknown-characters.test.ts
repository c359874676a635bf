// Byte-pair encoding of characters that no token spells; the ids are those of tokenizers 0.23.3.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const TOKENS = ['<unk>', '<0xC3>', '<0xA9>', 'a', 'b', 'c', 'd', '\u0120'];
const MERGES = ['a b', 'ab c', 'c d', 'abc d', 'a b</w>'];
const WORDS = [...TOKENS, ...MERGES.map((pair) => pair.replace(' ', '')).slice(0, 4), 'b</w>', 'ab</w>'];

async function open(model: object) {
  const directory = temporaryDirectory();
  const tokenizer = {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: null,
    decoder: null,
    model: { vocab: Object.fromEntries(WORDS.map((token, id) => [token, id])), merges: MERGES, ...model },
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
