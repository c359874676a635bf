import type { EncodeOptions, Tokenizer } from './tokenizer.js';

/** Characters of a token at first, and how many times more where that were too few. */
const CHARACTERS = 8;
const MORE = 4;

/**
 * A tokenizer for callers that drop texts of more than `longest` tokens. Of a longer text it gives only the first
 * tokens, more than `longest` of them, so that a text of megabytes, which takes half a minute, is read no further than
 * needed.
 */
export function readingUpTo(tokenizer: Tokenizer, longest: number): Tokenizer {
  const encode = (text: string, options?: EncodeOptions): number[] => {
    for (let end = CHARACTERS * (longest + 1); end < text.length; end *= MORE) {
      // A character of two code units stays whole.
      const ids = tokenizer.encode(text.slice(0, isPair(text, end) ? end - 1 : end), options);
      if (ids.length > longest + MARGIN) return ids;
    }
    return tokenizer.encode(text, options);
  };
  return Object.create(tokenizer, { encode: { value: encode } });
}

/** The last tokens before the cut may be others than in the whole text, and a token or two more. */
const MARGIN = 16;

const isPair = (text: string, end: number) => /[\ud800-\udbff]/.test(text.charAt(end - 1));
