import { expect, it } from 'vitest';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { digitTokens, tellsNumber } from '../../src/tokenizer/number-tokens.js';

it('knows the tokens of numbers, and those that end them', () => {
  const tokenizer = byteTokenizer();
  const text = 'a 12.5 + b';
  const ids = tokenizer.encode(text, { addSpecialTokens: false });
  const hasDigit = digitTokens(tokenizer);
  const marked = [...text].map((character, i) => (tellsNumber(ids, i, hasDigit) ? character : '_')).join('');
  expect(marked).toBe('__12.5 ___');
});
