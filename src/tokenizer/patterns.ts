import * as library from '@huggingface/tokenizers';

/** Parts of the library that its types leave out. */
export const { SplitPreTokenizer, PrecompiledNormalizer } = library as unknown as {
  readonly SplitPreTokenizer: new (json: object) => { readonly pattern: RegExp | null };
  readonly PrecompiledNormalizer: new (json: object) => { normalize(text: string): string };
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
