// How a GGUF file says that text is cut before its merges.
import { expect, test } from 'vitest';
import { ggufTokenizer } from '../../src/tokenizer/gguf-tokenizer.js';
import type { MetadataValue } from '../../src/weights/gguf/file.js';
import { Metadata } from '../../src/weights/gguf/metadata.js';

const ofPre = (pre: string | undefined) =>
  new Metadata(
    'model.gguf',
    new Map<string, MetadataValue>(
      Object.entries({
        'general.architecture': 'qwen2',
        'tokenizer.ggml.model': 'gpt2',
        'tokenizer.ggml.tokens': ['1', '2', '12'],
        'tokenizer.ggml.token_type': [1, 1, 1],
        'tokenizer.ggml.merges': ['1 2'],
        ...(pre === undefined ? {} : { 'tokenizer.ggml.pre': pre }),
      }),
    ),
  );

test('cuts as the file says', () => {
  expect(JSON.stringify(ggufTokenizer(ofPre('qwen2')).tokenizer)).toContain('\\\\p{L}+|\\\\p{N}|');
});

// Converters that knew no better wrote these for models of any kind: GPT-2's way would make other tokens of digits.
test.each([
  [undefined, 'nothing'],
  ['default', '"default"'],
  ['another', '"another"'],
])('refuses a file that does not say: %s', (pre, found) => {
  expect(() => ggufTokenizer(ofPre(pre))).toThrow(
    new RegExp(
      `^model.gguf: tokenizer.ggml.pre: expected how the model's text is cut, one of .*qwen2.*; found ${found}; .*--tokenizer DIR$`,
    ),
  );
});
