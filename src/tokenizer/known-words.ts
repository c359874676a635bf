import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import type { TokenizerJson } from './checks.js';
import { wordCutterOf } from './pre-tokenizers.js';

interface AddedToken {
  readonly id: number;
  /** Takes the blanks before it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
}

/** The library's own state; its types call it private. */
interface Internals {
  readonly added_tokens_map: ReadonlyMap<string, AddedToken>;
  readonly splitter_unnormalized: { split(text: string): string[] };
  readonly splitter_normalized: { split(text: string): string[] };
  readonly normalizer: ((text: string) => string) | null;
  readonly model: ((words: string[]) => string[]) & { readonly tokens_to_ids: ReadonlyMap<string, number> };
}

/** Words whose tokens are kept, some 30 MB; all are forgotten together. */
const MOST_WORDS = 200_000;
/** UTF-16 units of a word that is kept: longer ones hardly come again. */
const LONGEST_WORD = 64;

/**
 * A faster `encode` of the library for BPE, whose tokens of a word depend on that word alone: the ids of words that were met
 * before come from a table. Undefined for other models. The function gives undefined for a text that the library has to read:
 * one with a character that no token spells, or with an added token that takes blanks or stands in normalised text.
 */
export function wordEncoder(
  library: LibraryTokenizer,
  { model, pre_tokenizer }: TokenizerJson,
): ((text: string) => number[] | undefined) | undefined {
  const cutter = wordCutterOf(pre_tokenizer);
  const { type, unk_token: unknown, fuse_unk: fused } = model as Readonly<Record<string, unknown>>;
  // Unknown tokens that are fused join over words.
  if (cutter === undefined || type !== 'BPE' || (fused === true && unknown)) return undefined;
  const internals = library as unknown as Internals;
  const { added_tokens_map: added, normalizer, model: tokensOf } = internals;
  const known = new Map<string, readonly number[]>();

  function idsOf(word: string): readonly number[] | undefined {
    const ids = tokensOf([cutter?.spelled(word) ?? word]).map((token) => tokensOf.tokens_to_ids.get(token));
    if (!ids.every((id) => id !== undefined)) return undefined;
    if (word.length > LONGEST_WORD) return ids;
    if (known.size >= MOST_WORDS) known.clear();
    known.set(word, ids);
    return ids;
  }

  /** Adds the ids of a text without added tokens; false where the library has to read it. */
  function addText(ids: number[], given: string, isFirst: boolean): boolean {
    const text = normalizer ? normalizer(given) : given;
    if (text === '') return true;
    const parts = internals.splitter_normalized.split(text);
    if (parts.length > 1 || added.has(text)) return false;
    for (const word of cutter?.words(text, isFirst) ?? []) {
      const found = known.get(word) ?? idsOf(word);
      if (found === undefined) return false;
      for (const id of found) ids.push(id);
    }
    return true;
  }

  return (text) => {
    const ids: number[] = [];
    for (const [i, section] of internals.splitter_unnormalized.split(text).entries()) {
      const token = added.get(section);
      if (token?.lstrip || token?.rstrip) return undefined;
      if (token) ids.push(token.id);
      else if (!addText(ids, section, i === 0)) return undefined;
    }
    return ids;
  };
}
