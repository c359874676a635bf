// Tokens that only tokenizer_config.json names: the ids that transformers 5.24 gives them (PreTrainedTokenizerFast saved, its configuration
// changed, AutoTokenizer.from_pretrained).
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** 256 bytes and three special tokens, and one that the model has as a piece. */
async function configured(config: object): Promise<Tokenizer> {
  const directory = join(temporaryDirectory(), 'tokenizer');
  await byteTokenizer().save(directory);
  const path = join(directory, 'tokenizer_config.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...config }));
  return loadTokenizer(directory);
}

const token = (content: string, more: object = {}) => ({
  content,
  lstrip: false,
  rstrip: false,
  normalized: false,
  single_word: false,
  ...more,
});

it.each([
  [{ extra_special_tokens: ['<a>', '<b>'] }, { '<a>': 259, '<b>': 260 }],
  [{ additional_special_tokens: ['<b>', '<|eos|>', 'x'] }, { '<b>': 259, x: 120 }],
  [{ extra_special_tokens: { b_token: '<b>', a_token: '<a>' } }, { '<b>': 259, '<a>': 260 }],
  [
    { unk_token: '<b>', extra_special_tokens: ['<a>', '<b>'] },
    { '<b>': 259, '<a>': 260 },
  ],
  [
    { extra_special_tokens: ['<a>'], added_tokens_decoder: { 259: token('<b>') } },
    { '<b>': 259, '<a>': 260 },
  ],
  // Neither transformers 4 nor 5 leaves ids free.
  [{ added_tokens_decoder: { 300: token('<a>'), 290: token('<b>') } }, { '<b>': 259, '<a>': 260 }],
  [{ extra_special_tokens: 'none', additional_special_tokens: [null, ''] }, {}],
])('%j', async (config, ids: Readonly<Record<string, number>>) => {
  const tokenizer = await configured(config);
  for (const [text, id] of Object.entries(ids)) {
    expect(tokenizer.encode(`1${text}2`)).toEqual([49, id, 50]);
    expect(tokenizer.decode([49, id, 50])).toBe(`1${text}2`);
  }
  expect(tokenizer.encode('<c>')).toEqual([60, 99, 62]);
});

it('take white space where they say so, and are left out where special', async () => {
  const tokenizer = await configured({ extra_special_tokens: [token('<a>', { lstrip: true })] });
  expect(tokenizer.encode('1 <a> 2')).toEqual([49, 259, 32, 50]);
  expect(tokenizer.decode([49, 259, 50], { skipSpecialTokens: true })).toBe('12');
  expect(tokenizer.isSpecial(259)).toBe(true);
});
