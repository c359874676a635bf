import { expect, it } from 'vitest';
import { hash48, textHash, wordsHash } from '../../src/random/text-hash.js';

it('hashes words as their text with spaces between', () => {
  const words = ['Ein', 'Löwe', '𝟙', 'of', '5'];
  expect(wordsHash(words, 1, 4)).toBe(textHash('Löwe 𝟙 of'));
  expect(wordsHash(words, 4, 5)).toBe(textHash('5'));
});

it('takes the first 48 bits of SHA-256', () => {
  // FIPS 180-2, B.1: ba7816bf 8f01…
  expect(hash48('abc')).toBe(0xba7816bf8f01);
});
