/** Byte-pair encoding of words on ids, as the Rust library computes it. The JavaScript library merges otherwise beside characters that no token spells, and joins unknown tokens of several words. */
import { NumberIndex } from '../native/number-index.js';
import { shown } from '../native/shown.js';
import type { Refuse } from './checks.js';
import { byteTokens } from './token-bytes.js';

/** Above every place in a word; ranks times it are whole numbers. */
const PLACES = 2 ** 29;

/** Above every id; see `checkedTokenizer`. */
const IDS = 2 ** 24;

/** The `model` of a tokenizer.json of type BPE. */
interface BytePairs {
  readonly merges?: unknown;
  readonly unk_token?: string | null;
  readonly fuse_unk?: boolean;
  readonly byte_fallback?: boolean;
  readonly ignore_merges?: boolean;
  readonly end_of_word_suffix?: string | null;
}

/** Gives the ids of a word as the vocabulary spells it. */
export type WordIds = (word: string) => number[];

/** Checks a model and gives its encoding of words. */
export function bytePairsOf(
  { merges, unk_token, fuse_unk, byte_fallback, ignore_merges, end_of_word_suffix }: BytePairs,
  idOf: (token: string) => number | undefined,
  refuse: Refuse,
): WordIds {
  const unknown: Unknown = {
    ...(byte_fallback === true && { bytesOf: (symbol) => byteTokens(symbol, idOf) }),
    ...(typeof unk_token === 'string' && {
      idOf: (symbol) =>
        idOf(unk_token) ??
        refuse(`has no token for ${shown(symbol)}, nor for its 'model.unk_token' ${shown(unk_token)}`),
    }),
    isFused: fuse_unk === true,
  };
  const pairs = new Merges(merges, idOf, refuse, unknown, end_of_word_suffix ?? '');
  if (ignore_merges !== true) return (word) => pairs.encode(word);
  return (word) => {
    const whole = idOf(word);
    return whole === undefined ? pairs.encode(word) : [whole];
  };
}

/** The two tokens of a merge, a text or a list; undefined of anything else. */
function pairOf(merge: unknown): readonly [string, string] | undefined {
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

/** Stand-ins for a character that no token spells. With neither it is left out. */
interface Unknown {
  /** The ids of its bytes, undefined where one of them has no token. */
  readonly bytesOf?: (symbol: string) => readonly number[] | undefined;
  /** The unknown token. */
  readonly idOf?: (symbol: string) => number;
  /** Several in a row are one unknown token. */
  readonly isFused?: boolean;
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
    private readonly unknown: Unknown = {},
    /** Ends the last symbol of a word. */
    private readonly wordEnd = '',
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

  /** Gives the ids of a word as the vocabulary spells it. */
  encode(word: string): number[] {
    return this.mergedOf(this.symbolsOf(word));
  }

  /** Gives the ids that merging begins with. */
  private symbolsOf(word: string): number[] {
    const ids: number[] = [];
    const { bytesOf, idOf, isFused } = this.unknown;
    /** An unknown token that is not added yet. It goes before the next token, but after bytes. */
    let waiting: number | undefined;
    const addWaiting = () => {
      if (waiting !== undefined) ids.push(waiting);
      waiting = undefined;
    };
    let end = 0;
    for (const character of word) {
      end += character.length;
      const symbol = end === word.length ? character + this.wordEnd : character;
      const id = this.idOf(symbol);
      if (id !== undefined) {
        addWaiting();
        ids.push(id);
        continue;
      }
      const bytes = bytesOf?.(symbol);
      if (bytes !== undefined) ids.push(...bytes);
      else if (idOf !== undefined) {
        if (!isFused) addWaiting();
        waiting = idOf(symbol);
      }
    }
    addWaiting();
    return ids;
  }

  /** Merges until no pair is left: the pair of the least rank, of equal ones the leftmost. */
  private mergedOf(ids: number[]): number[] {
    /** The place of the symbol after each, and before it. Merged symbols have the id −1. */
    const after = ids.map((_, at) => at + 1);
    const before = ids.map((_, at) => at - 1);
    const heap: number[] = [];
    const pairAt = (at: number) => {
      const right = ids[after[at] as number];
      return right === undefined ? -1 : this.pairs.indexOf((ids[at] as number) * IDS + right);
    };
    const offer = (at: number) => {
      const pair = at < 0 ? -1 : pairAt(at);
      if (pair >= 0) push(heap, (this.ranks[pair] as number) * PLACES + at);
    };
    for (let at = 0; at < ids.length; at++) offer(at);
    while (heap.length > 0) {
      const least = pop(heap);
      const at = least % PLACES;
      if ((ids[at] as number) < 0) continue;
      const pair = pairAt(at);
      // A symbol beside it has grown since.
      if (pair < 0 || this.ranks[pair] !== (least - at) / PLACES) continue;
      const right = after[at] as number;
      ids[at] = this.merged[pair] as number;
      ids[right] = -1;
      const next = after[right] as number;
      after[at] = next;
      if (next < ids.length) before[next] = at;
      offer(before[at] as number);
      offer(at);
    }
    return ids.filter((id) => id >= 0);
  }
}

/** Adds a number to a binary heap whose first is the least. */
function push(heap: number[], number: number): void {
  let at = heap.push(number) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    const above = heap[parent] as number;
    if (above <= number) break;
    heap[at] = above;
    at = parent;
  }
  heap[at] = number;
}

/** Takes the least number of a heap that is not empty. */
function pop(heap: number[]): number {
  const least = heap[0] as number;
  const last = heap.pop() as number;
  if (heap.length === 0) return least;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && (heap[child + 1] as number) < (heap[child] as number)) child++;
    if ((heap[child] as number) >= last) break;
    heap[at] = heap[child] as number;
    at = child;
  }
  heap[at] = last;
  return least;
}
