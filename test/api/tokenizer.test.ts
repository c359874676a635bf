import { expect, test } from 'vitest';
import { loadTokenizer } from '../../src/entries/index.js';
import { sharedPath } from '../shared.js';

const TEXT = 'Tom: 12 + 7 = 19';

test.each(['word-problems', 'word-problems-judge'])('the tokenizer of %s, of the package', async (name) => {
  const tokenizer = await loadTokenizer(name);
  expect(tokenizer.decode(tokenizer.encode(TEXT))).toContain('12 + 7 = 19');
});

test('what is not there is one sentence', async () => {
  await expect(loadTokenizer('no-such-model')).rejects.toThrow(
    /^loadTokenizer: there is no no-such-model .* word-problems/,
  );
});

const gguf = sharedPath('models/smollm2-135m-instruct.Q4_1.gguf');
test.skipIf(!gguf)('the tokenizer of a GGUF file (skipped where the shared model is absent)', async () => {
  const tokenizer = await loadTokenizer(gguf as string);
  // As llama.cpp cuts it.
  expect(tokenizer.encode('What is 12 + 7?')).toEqual([1780, 314, 216, 33, 34, 1232, 216, 39, 47]);
});
