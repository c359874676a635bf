import type { AddedTokens } from './added-tokens.js';
import type { WordIds } from './byte-pairs.js';
import type { TokenizerJson } from './checks.js';
import { type WordCutter, wordCutterOf } from './pre-tokenizers.js';

/** Words whose tokens are kept, some 30 MB; all are forgotten together. */
const MAX_WORDS = 200_000;
/** UTF-16 units of a word that is kept: longer ones hardly come again. */
const LONGEST_WORD = 64;

/**
 * A faster `encode` of the library for BPE, whose tokens of a word depend on that word alone: the ids of words that were met
 * before come from a table. Undefined for a tokenizer that does not cut words.
 */
export function wordEncoder(
  { pre_tokenizer }: TokenizerJson,
  { inText, inNormalised }: AddedTokens,
  bytePairs: WordIds,
): ((text: string) => number[]) | undefined {
  const cutter = wordCutterOf(pre_tokenizer);
  if (cutter === undefined) return undefined;
  const known = new Map<string, readonly number[]>();

  function idsOf(word: string, { spelled }: WordCutter): readonly number[] {
    const ids = bytePairs(spelled(word));
    if (word.length > LONGEST_WORD) return ids;
    if (known.size >= MAX_WORDS) known.clear();
    known.set(word, ids);
    return ids;
  }

  return (whole) => {
    const ids: number[] = [];
    for (const section of inText(whole)) {
      if (section.token) {
        ids.push(section.token.id);
        continue;
      }
      for (const { text, token, isFirst } of inNormalised(section.text)) {
        if (token) ids.push(token.id);
        else
          for (const word of cutter.words(text, section.isFirst && isFirst))
            for (const id of known.get(word) ?? idsOf(word, cutter)) ids.push(id);
      }
    }
    return ids;
  };
}
