// Ids of words that were met before, beside the library's own `encode`.
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { HuggingFaceTokenizer } from '../../src/tokenizer/huggingface.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { sharedPath } from '../shared.js';

const PLAIN = [
  'Tom has 12 apples.',
  'a',
  '  two  spaces and\ttabs \n\n lines\r\n',
  "it's \\frac{1}{2} of $x^{2}$; 1234567",
  'Zoë, naïve, 日本語, \u{1f600}\u{1f600}',
  'x'.repeat(300),
  'e\u0301 and \u00e9',
];
const WITH_TOKENS = ['<|im_start|>user\nhi<|im_end|>', '<|im_end|>', 'a<|endoftext|>', ''];

interface Built {
  readonly library: {
    encode(text: string, options: { readonly add_special_tokens: boolean }): { readonly ids: number[] };
  };
  readonly words?: (text: string) => number[] | undefined;
}

async function opened(directory: string): Promise<HuggingFaceTokenizer> {
  const tokenizer = await loadTokenizer(directory);
  if (!(tokenizer instanceof HuggingFaceTokenizer)) throw new Error(`${directory}: not of the library`);
  return tokenizer;
}

function expectEqual(tokenizer: HuggingFaceTokenizer, isFast: boolean): void {
  // Private to the class.
  const { built } = tokenizer as unknown as { readonly built: Built };
  const { library, words } = built;
  const read = (text: string) => library.encode(text, { add_special_tokens: false }).ids;
  // The second time the words are known.
  for (const text of [...PLAIN, ...PLAIN]) {
    expect(words?.(text)).toEqual(isFast ? read(text) : undefined);
    expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(read(text));
  }
  for (const text of WITH_TOKENS) {
    if (isFast) expect(words?.(text)).toEqual(read(text));
    expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(read(text));
  }
}

const golden = (name: string) => fileURLToPath(new URL(`../golden/${name}`, import.meta.url));

it.each([
  ['published/chatml', true],
  ['trl_prm/qwen2', true],
  // Words are not cut, or their tokens are no BPE.
  ['trl_prm/llama', false],
  ['unigram', false],
])('are those of the library for %s', async (name, isFast) => {
  expectEqual(await opened(golden(name)), isFast);
});

const qwen = sharedPath('data/tokenizers/qwen2_5');
it.skipIf(!qwen)('are those of the library for Qwen2.5, which normalises to NFC', async () => {
  expectEqual(await opened(qwen as string), true);
});
