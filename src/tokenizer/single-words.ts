import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';

/** Splits a text into added tokens and the texts between them; empty texts are left out. */
interface Splitter {
  split(text: string): string[];
}

/** The library's own state; its types call it private. */
interface Internals {
  readonly added_tokens_map: ReadonlyMap<string, { readonly single_word: boolean }>;
  readonly splitter_unnormalized: Splitter;
  readonly splitter_normalized: Splitter;
}

/** A character of a word, as Rust's regular expressions understand `\w`. */
const WORD = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]`;
const ENDS_IN_WORD = new RegExp(`${WORD}$`, 'u');
const BEGINS_WITH_WORD = new RegExp(`^${WORD}`, 'u');

/**
 * Makes added tokens with `single_word` match whole words alone, as the Rust library does. This one reads the flag, and
 * finds "step" in "stepping" all the same.
 */
export function respectSingleWords(library: LibraryTokenizer): void {
  const internals = library as unknown as Internals;
  const tokens = internals.added_tokens_map;
  if (![...tokens.values()].some(({ single_word }) => single_word)) return;
  const isInsideWord = (text: string, start: number, end: number) =>
    ENDS_IN_WORD.test(text.slice(Math.max(0, start - 2), start)) ||
    BEGINS_WITH_WORD.test(text.slice(end, end + 2));
  for (const splitter of [internals.splitter_unnormalized, internals.splitter_normalized]) {
    const split = splitter.split.bind(splitter);
    splitter.split = (text) => {
      const pieces: string[] = [];
      let start = 0;
      let followsText = false;
      for (const piece of split(text)) {
        const end = start + piece.length;
        const token = tokens.get(piece);
        const isText = token === undefined || (token.single_word && isInsideWord(text, start, end));
        if (isText && followsText) pieces.push(pieces.pop() + piece);
        else pieces.push(piece);
        followsText = isText;
        start = end;
      }
      return pieces;
    };
  }
}
