import * as library from '@huggingface/tokenizers';

/** Parts of the library that its types leave out. */
export const { SplitPreTokenizer } = library as unknown as {
  readonly SplitPreTokenizer: new (json: object) => { readonly pattern: RegExp | null };
};

/** A pattern of a tokenizer.json: an expression in Oniguruma's syntax, or a text. */
export type PatternJson = { readonly Regex?: unknown; readonly String?: unknown };

/** The expression that finds the pattern everywhere in a text. @throws Error for an invalid pattern */
export function patternOf(given: unknown): RegExp {
  const { Regex, String: text } = (given ?? {}) as PatternJson;
  // The library translates Oniguruma's syntax.
  if (typeof Regex === 'string') {
    const { pattern } = new SplitPreTokenizer({ pattern: { Regex }, invert: false });
    if (pattern) return pattern;
  }
  if (typeof text === 'string') return new RegExp(text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), 'gu');
  throw new Error('a pattern is neither Regex nor String');
}

/** The matches of a pattern in a text. V8 finds empty ones in the middle of characters beyond U+FFFF too, which are left out. */
export function* matchesOf(text: string, pattern: RegExp): Generator<RegExpExecArray> {
  for (const match of text.matchAll(pattern))
    if (match[0] !== '' || !isInCharacter(text, match.index)) yield match;
}

const isInCharacter = (text: string, at: number) =>
  /^[\uD800-\uDBFF][\uDC00-\uDFFF]$/.test(text.slice(Math.max(0, at - 1), at + 1));

/** The text with `content` in the place of each match. */
export function replaced(text: string, pattern: RegExp, content: string): string {
  let [all, end] = ['', 0];
  for (const match of matchesOf(text, pattern)) {
    all += text.slice(end, match.index) + content;
    end = match.index + match[0].length;
  }
  return all + text.slice(end);
}

/** A part of a tokenizer.json. */
export type Part = Readonly<Record<string, unknown>>;

/** The parts of a sequence, in order; one part is a sequence of itself. */
export function partsOf(part: unknown, key: string): readonly Part[] {
  if (part === null || part === undefined) return [];
  const { type, [key]: inner } = part as Part;
  if (type !== 'Sequence') return [part as Part];
  return ((inner ?? []) as unknown[]).flatMap((each) => partsOf(each, key));
}

/** A part that is not known. @throws Error */
export function unknownPart(kind: string, { type }: Part): never {
  throw new Error(`the ${kind} ${JSON.stringify(type)} is not known`);
}
