import type { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import type { AddedTokens } from './added-tokens.js';
import type { TokenizerJson } from './checks.js';
import type { Merges } from './merges.js';
import { wordCutterOf } from './pre-tokenizers.js';

/** The library's own state; its types call it private. */
interface Internals {
  readonly normalizer: ((text: string) => string) | null;
  readonly model: ((words: string[]) => string[]) & { readonly tokens_to_ids: ReadonlyMap<string, number> };
}

/** Words whose tokens are kept, some 30 MB; all are forgotten together. */
const MAX_WORDS = 200_000;
/** UTF-16 units of a word that is kept: longer ones hardly come again. */
const LONGEST_WORD = 64;

/**
 * A faster `encode` of the library for BPE, whose tokens of a word depend on that word alone: the ids of words that were met
 * before come from a table. Undefined for other models. The function gives undefined for a text that the library has to read:
 * one with a character that no token spells.
 */
export function wordEncoder(
  library: LibraryTokenizer,
  { model, pre_tokenizer }: TokenizerJson,
  { inText, inNormalised }: AddedTokens,
  merges: Merges | undefined,
): ((text: string) => number[] | undefined) | undefined {
  const cutter = wordCutterOf(pre_tokenizer);
  const { type, unk_token: unknown, fuse_unk: fused, ...more } = model as Readonly<Record<string, unknown>>;
  // Unknown tokens that are fused join over words.
  if (cutter === undefined || type !== 'BPE' || (fused === true && unknown)) return undefined;
  const { normalizer, model: tokensOf } = library as unknown as Internals;
  const known = new Map<string, readonly number[]>();
  const idOf = (token: string) => tokensOf.tokens_to_ids.get(token);

  function merged(word: string): readonly number[] | undefined {
    const whole = more.ignore_merges === true ? idOf(word) : undefined;
    if (whole !== undefined) return [whole];
    if (more.end_of_word_suffix) return undefined;
    return merges?.encode(word);
  }

  function idsOf(word: string): readonly number[] | undefined {
    const spelled = cutter?.spelled(word) ?? word;
    const ids = merged(spelled) ?? tokensOf([spelled]).map(idOf);
    if (!ids.every((id) => id !== undefined)) return undefined;
    if (word.length > LONGEST_WORD) return ids;
    if (known.size >= MAX_WORDS) known.clear();
    known.set(word, ids);
    return ids;
  }

  /** Adds the ids of a text without added tokens; false where the library has to read it. */
  function addText(ids: number[], text: string, isFirst: boolean): boolean {
    for (const word of cutter?.words(text, isFirst) ?? []) {
      const found = known.get(word) ?? idsOf(word);
      if (found === undefined) return false;
      for (const id of found) ids.push(id);
    }
    return true;
  }

  return (whole) => {
    const ids: number[] = [];
    for (const section of inText(whole)) {
      if (section.token) {
        ids.push(section.token.id);
        continue;
      }
      for (const { text, token, isFirst } of inNormalised(normalizer?.(section.text) ?? section.text)) {
        if (token) ids.push(token.id);
        else if (!addText(ids, text, section.isFirst && isFirst)) return undefined;
      }
    }
    return ids;
  };
}
