/** Byte-pair encoding of words on ids: the Rust library's tokens, five times as fast as the JavaScript library on texts. */
import { NumberIndex } from '../native/number-index.js';
import { shown } from '../native/shown.js';
import type { Refuse } from './checks.js';

/** Symbols of a word that is merged here: every merge looks at all pairs of a word, which long ones have too many of. */
const MOST_SYMBOLS = 256;

/** Above every id; see `checkedTokenizer`. */
const IDS = 2 ** 24;

/** The two tokens of a merge, a text or a list; undefined of anything else. */
export function pairOf(merge: unknown): readonly [string, string] | undefined {
  if (typeof merge === 'string') {
    const blank = merge.indexOf(' ');
    const isPair = blank >= 0 && merge.indexOf(' ', blank + 1) < 0;
    return isPair ? [merge.slice(0, blank), merge.slice(blank + 1)] : undefined;
  }
  const isPair =
    Array.isArray(merge) &&
    merge.length === 2 &&
    typeof merge[0] === 'string' &&
    typeof merge[1] === 'string';
  return isPair ? (merge as [string, string]) : undefined;
}

/** Pairs of ids that merge, the first to be merged first. */
export class Merges {
  private readonly pairs: NumberIndex;
  /** Ranks of the pairs, and the ids that they become. */
  private readonly ranks: Int32Array;
  private readonly merged: Int32Array;

  /** Checks the merges, pairs of tokens as texts or lists: one whose tokens are not there would let text disappear. */
  constructor(
    merges: unknown,
    private readonly idOf: (token: string) => number | undefined,
    refuse: Refuse,
  ) {
    if (!Array.isArray(merges)) throw refuse(`'model.merges' is no list, found ${shown(merges)}`);
    this.pairs = new NumberIndex(2 ** Math.ceil(Math.log2(merges.length + 1)));
    this.ranks = new Int32Array(merges.length);
    this.merged = new Int32Array(merges.length);
    for (let rank = 0; rank < merges.length; rank++) {
      const [left, right] =
        pairOf(merges[rank]) ??
        refuse(`'model.merges': expected two tokens at place ${rank}, found ${shown(merges[rank])}`);
      const id = (token: string) =>
        idOf(token) ??
        refuse(`'model.merges': place ${rank} needs the token ${shown(token)}, which the vocabulary lacks`);
      const pair = this.pairs.add(id(left) * IDS + id(right));
      // A pair that comes twice has its last place.
      this.ranks[pair] = rank;
      this.merged[pair] = id(left + right);
    }
  }

  /** Gives the ids of a word as the vocabulary spells it; undefined where it has many symbols, or one that no token is. */
  encode(word: string): number[] | undefined {
    const ids: number[] = [];
    for (const symbol of word) {
      const id = this.idOf(symbol);
      if (id === undefined) return undefined;
      ids.push(id);
    }
    if (ids.length > MOST_SYMBOLS) return undefined;
    /** The pair that begins at each place, −1 where it does not merge. */
    const pairs: number[] = [];
    for (let at = 1; at < ids.length; at++) pairs.push(this.pairAt(ids, at - 1));
    for (;;) {
      const at = this.first(pairs);
      if (at < 0) return ids;
      ids[at] = this.merged[pairs[at] as number] as number;
      ids.splice(at + 1, 1);
      pairs.splice(at, 1);
      if (at > 0) pairs[at - 1] = this.pairAt(ids, at - 1);
      if (at < pairs.length) pairs[at] = this.pairAt(ids, at);
    }
  }

  private pairAt(ids: readonly number[], at: number): number {
    return this.pairs.indexOf((ids[at] as number) * IDS + (ids[at + 1] as number));
  }

  /** The place of the pair to merge next, the leftmost of equal ones; −1 where none merges. */
  private first(pairs: readonly number[]): number {
    let first = -1;
    let least = this.ranks.length;
    for (let at = 0; at < pairs.length; at++) {
      const pair = pairs[at] as number;
      if (pair < 0) continue;
      const rank = this.ranks[pair] as number;
      if (rank < least) {
        least = rank;
        first = at;
      }
    }
    return first;
  }
}
