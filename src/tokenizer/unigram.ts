/** SentencePiece's unigram model as the Rust library computes it: in doubles, with its ties, and bytes for unknown characters. */
import { byteTokens } from './token-bytes.js';

/** The library's model; its types call it private. */
interface UnigramModel {
  encode: (words: readonly string[]) => string[];
  fuse_unk: boolean;
  readonly trie: {
    common_prefix_search(characters: readonly string[], at: number): Iterable<string>;
  };
  readonly vocab: readonly string[];
  readonly tokens_to_ids: ReadonlyMap<string, number>;
}

interface UnigramJson {
  readonly vocab: readonly (readonly [piece: string, score: number])[];
  readonly unk_id?: number | null;
  readonly byte_fallback?: boolean;
}

/** The difference between the score of the least likely piece and that of an unknown character. */
const UNKNOWN_PENALTY = 10;

/** Replaces the encoding of the library, whose ties fall otherwise, and which knows no bytes and joins unknown tokens of several words. */
export function replaceUnigram(
  model: UnigramModel,
  { vocab, unk_id, byte_fallback = false }: UnigramJson,
): void {
  const least = vocab.reduce((min, [, score]) => Math.min(min, score), Number.POSITIVE_INFINITY);
  const unknown = unk_id ?? undefined;
  const { vocab: tokens, tokens_to_ids: ids } = model;
  const bytesOf = (text: string) =>
    byteTokens(text, (token) => ids.get(token))?.map((id) => tokens[id] as string);
  model.encode = (words) =>
    words.flatMap((word) =>
      likeliest(model, word, vocab, { unknown, score: least - UNKNOWN_PENALTY }).flatMap((piece) =>
        ids.has(piece)
          ? [piece]
          : (byte_fallback && bytesOf(piece)) || [
              unknown === undefined ? piece : (tokens[unknown] as string),
            ],
      ),
    );
  model.fuse_unk = false;
}

/** The pieces of a word with the highest sum of scores; of equal sums the one found first. Unknown characters in a row are one piece. */
function likeliest(
  { trie, tokens_to_ids: ids }: UnigramModel,
  word: string,
  vocab: UnigramJson['vocab'],
  { unknown, score: unknownScore }: { readonly unknown: number | undefined; readonly score: number },
): string[] {
  const characters = Array.from(word);
  const best = characters.map(() => ({ id: -1, score: 0, from: -1 }));
  best.push({ id: -1, score: 0, from: -1 });
  const offer = (end: number, from: number, id: number, score: number) => {
    const node = best[end] as (typeof best)[number];
    if (node.from >= 0 && score <= node.score) return;
    Object.assign(node, { id, score, from });
  };
  for (let at = 0; at < characters.length; at++) {
    const { score: before } = best[at] as (typeof best)[number];
    let isCovered = false;
    for (const piece of trie.common_prefix_search(characters, at)) {
      const id = ids.get(piece) as number;
      const { length } = Array.from(piece);
      const own = vocab[id]?.[1];
      // An added token is no piece of the model.
      if (own === undefined) continue;
      offer(at + length, at, id, own + before);
      isCovered ||= length === 1;
    }
    if (!isCovered) offer(at + 1, at, unknown ?? -1, unknownScore + before);
  }
  const pieces: string[] = [];
  let joined = '';
  for (let end = characters.length; end > 0; ) {
    const { id, from } = best[end] as (typeof best)[number];
    const piece = characters.slice(from, end).join('');
    if (id === unknown) joined = piece + joined;
    else {
      if (joined !== '') pieces.push(joined);
      joined = '';
      pieces.push(piece);
    }
    end = from;
  }
  if (joined !== '') pieces.push(joined);
  return pieces.reverse();
}
