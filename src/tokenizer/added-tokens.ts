// Added tokens are found in texts as Hugging Face's Rust library finds them. The JavaScript library passes `single_word` over,
// takes longer tokens of normalised texts before others, and cuts blanks off neighbouring tokens.
import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Is looked for in the normalised text, and normalised itself. */
  readonly normalized: boolean;
  readonly special: boolean;
  readonly single_word: boolean;
  /** Takes the blanks before it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
}

/** A part of a text: an added token, or text without any. */
export interface Section {
  readonly text: string;
  readonly token?: AddedToken;
  /** Begins where the text begins. */
  readonly isFirst: boolean;
}

type Sections = (text: string) => Section[];

/** Both searches, one after the other: the second one normalises the texts between tokens and looks at them. */
export interface AddedTokens {
  readonly inText: Sections;
  readonly inNormalised: Sections;
}

/** The library's own state; its types call it private. */
interface Internals {
  readonly added_tokens: readonly AddedToken[];
  readonly added_tokens_map: Map<string, AddedToken>;
  readonly normalizer: ((text: string) => string) | null;
  readonly pre_tokenizer: ((text: string, options: { section_index: number }) => string[]) | null;
  readonly model: ((words: string[]) => string[]) & { readonly tokens_to_ids: Map<string, number> };
  token_to_id(token: string): number | undefined;
  encode_text(text: string | null): string[] | null;
}

/**
 * Makes the library cut texts as the Rust library does, and gives the cuts.
 *
 * @param hasPiece whether a token is in the model's vocabulary, without added tokens
 */
export function respectAddedTokens(
  library: LibraryTokenizer,
  hasPiece: ((token: string) => boolean) | undefined,
): AddedTokens {
  const internals = library as unknown as Internals;
  const { added_tokens: given, added_tokens_map: byContent, normalizer, pre_tokenizer, model } = internals;
  const normalise = (text: string) => (normalizer ? normalizer(text) : text);
  // The last of two with the same text counts, and special ones come first.
  const tokens = [...given].sort((a, b) => Number(b.special) - Number(a.special));
  const [raw, normalised] = [false, true].map((which) =>
    tokens.filter(({ normalized }) => normalized === which),
  ) as [AddedToken[], AddedToken[]];
  const inText = sectionsOf(raw.map((token) => [token.content, token]));
  const cutNormalised = sectionsOf(normalised.map((token) => [normalise(token.content), token]));
  const inNormalised = (text: string): Section[] => {
    const sections = cutNormalised(normalise(text));
    return beginsWithNothing(text, normalise)
      ? sections.map((section) => ({ ...section, isFirst: false }))
      : sections;
  };
  byContent.clear();
  const { tokens_to_ids: ids } = model;
  for (const token of given) {
    byContent.set(token.content, token);
    // The library adds the token to the model's vocabulary, which then spells other texts with it.
    if (hasPiece && !hasPiece(token.content)) ids.delete(token.content);
  }
  internals.token_to_id = (text) => byContent.get(text)?.id ?? ids.get(text);
  internals.encode_text = (whole) =>
    whole === null
      ? null
      : inText(whole).flatMap((section) =>
          section.token
            ? [section.token.content]
            : inNormalised(section.text).flatMap(({ text, token, isFirst }) => {
                if (token) return [token.content];
                const section_index = section.isFirst && isFirst ? 0 : 1;
                return model(pre_tokenizer ? pre_tokenizer(text, { section_index }) : [text]);
              }),
        );
  return { inText, inNormalised };
}

/** Whether a normaliser leaves out the first character of a text. What follows does not begin the text then. */
function beginsWithNothing(text: string, normalise: (text: string) => string): boolean {
  const first = String.fromCodePoint(text.codePointAt(0) ?? 0);
  return normalise(first) === '' && normalise(text) === normalise(text.slice(first.length));
}

/** A character of a word, as Rust's regular expressions understand `\w`. */
const WORD = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]`;
const ENDS_IN_WORD = new RegExp(`${WORD}$`, 'u');
const BEGINS_WITH_WORD = new RegExp(`^${WORD}`, 'u');
/** Rust's `\s`, which has U+0085 and no U+FEFF. */
const BLANK = /\p{White_Space}/u;

function isInsideWord(text: string, start: number, end: number): boolean {
  return (
    ENDS_IN_WORD.test(text.slice(Math.max(0, start - 2), start)) ||
    BEGINS_WITH_WORD.test(text.slice(end, end + 2))
  );
}

/** Cuts a text at the leftmost and longest of the given texts. */
function sectionsOf(entries: readonly (readonly [text: string, token: AddedToken])[]): Sections {
  const longest = longestOf(entries);
  const next = beginsWithOneOf(entries.map(([content]) => content));
  if (longest === undefined) return (text) => (text === '' ? [] : [{ text, isFirst: true }]);
  return (text) => {
    const sections: Section[] = [];
    let done = 0;
    const add = (end: number, token?: AddedToken) => {
      if (end > done || token)
        sections.push({ text: text.slice(done, end), isFirst: done === 0, ...(token ? { token } : {}) });
      done = end;
    };
    for (let at = next(text, 0); at >= 0; at = next(text, at)) {
      const found = longest(text, at);
      if (found === undefined) {
        at++;
        continue;
      }
      const { token } = found;
      let [start, end] = [at, at + found.length];
      at = end;
      // A token before it may have taken its blanks, all or the first ones.
      if (end <= done || (token.single_word && isInsideWord(text, start, end))) continue;
      if (token.lstrip) while (start > done && BLANK.test(text[start - 1] as string)) start--;
      if (token.rstrip) while (end < text.length && BLANK.test(text[end] as string)) end++;
      add(Math.max(start, done));
      add(end, token);
    }
    add(text.length);
    return sections;
  };
}

/** Finds the next place from one on at which any of the given texts may begin, −1 where there is none. */
function beginsWithOneOf(texts: readonly string[]): (text: string, from: number) => number {
  const units = new Set(texts.filter(Boolean).map((text) => text.charCodeAt(0)));
  const hex = (unit: number) => `\\u${unit.toString(16).padStart(4, '0')}`;
  const pattern = new RegExp(`[${Array.from(units, hex).join('')}]`, 'g');
  return (text, from) => {
    pattern.lastIndex = from;
    return pattern.test(text) ? pattern.lastIndex - 1 : -1;
  };
}

interface Node {
  readonly next: Map<number, Node>;
  token?: AddedToken;
}

type Longest = (
  text: string,
  at: number,
) => { readonly token: AddedToken; readonly length: number } | undefined;

/** Finds the longest of the given texts at a place; undefined where there are none. */
function longestOf(entries: readonly (readonly [string, AddedToken])[]): Longest | undefined {
  const root: Node = { next: new Map() };
  for (const [text, token] of entries) {
    let node = root;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      const next: Node = node.next.get(unit) ?? { next: new Map() };
      node.next.set(unit, next);
      node = next;
    }
    if (node !== root) node.token = token;
  }
  if (root.next.size === 0) return undefined;
  return (text, at) => {
    let node = root.next.get(text.charCodeAt(at));
    let found: ReturnType<Longest>;
    for (let end = at + 1; node !== undefined; end++) {
      if (node.token) found = { token: node.token, length: end - at };
      node = end < text.length ? node.next.get(text.charCodeAt(end)) : undefined;
    }
    return found;
  };
}
