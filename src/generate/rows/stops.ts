/** Finds stop strings in streamed bytes: a string may begin in one token and end in another. */
import { utf8 } from '../../tokenizer/token-bytes.js';

/** A stop string in a text. */
export interface StopMatch {
  readonly string: string;
  /** Byte at which the string begins. */
  readonly begin: number;
  /** Byte after its last one. */
  readonly end: number;
}

/** Beginnings of stop strings. */
interface State {
  /** Bytes of the beginning. */
  readonly depth: number;
  /** Longer prefixes by the next byte; empty at the end of a string that is no prefix of another. */
  readonly next: Map<number, State>;
  /** The longest beginning that this one ends with; undefined of the empty one. */
  shorter: State | undefined;
  /** The longest string that this beginning ends with. */
  ends: { readonly string: string; readonly length: number } | undefined;
}

/**
 * Finds the stop string that ends first, and the longest one if several end together; the division of the text into
 * pieces does not matter, and a byte costs the same whatever the strings are (Aho and Corasick, 1975). One matcher per text.
 */
export class StopMatcher {
  private readonly start: State;
  private state: State;
  private length = 0;
  private match: StopMatch | undefined;

  /** @param strings matchers of one list share the compiled automaton */
  constructor(strings: readonly string[]) {
    this.start = automata.get(strings) ?? automaton(strings);
    automata.set(strings, this.start);
    this.state = this.start;
  }

  /**
   * Adds bytes to the text and returns its stop, once there is one. Bytes after a stop change nothing.
   *
   * @param counts false: a stop string that ends in these bytes counts as ordinary text
   */
  push(bytes: ArrayLike<number>, counts = true): StopMatch | undefined {
    for (let i = 0; i < bytes.length && !this.match; i++) {
      this.state = after(this.state, bytes[i] as number) ?? this.start;
      this.length++;
      const { ends } = this.state;
      if (counts && ends)
        this.match = { string: ends.string, begin: this.length - ends.length, end: this.length };
    }
    return this.match;
  }

  /** Number of last bytes that may begin a stop string and so must be held back. */
  get pending(): number {
    if (this.match) return 0;
    // A whole string that did not count may end with the beginning of another.
    let state: State | undefined = this.state;
    while (state && state.next.size === 0) state = state.shorter;
    return state?.depth ?? 0;
  }
}

const automata = new WeakMap<readonly string[], State>();

/** The longest beginning that the text ends with, one byte later; undefined: not even that byte begins a string. */
function after(state: State, byte: number): State | undefined {
  for (let from: State | undefined = state; from; from = from.shorter) {
    const next = from.next.get(byte);
    if (next) return next;
  }
  return undefined;
}

function automaton(strings: readonly string[]): State {
  const start: State = { depth: 0, next: new Map(), shorter: undefined, ends: undefined };
  const all = [start];
  for (const string of strings) {
    let state = start;
    for (const byte of utf8(string)) {
      let next = state.next.get(byte);
      if (!next) {
        next = { depth: state.depth + 1, next: new Map(), shorter: start, ends: undefined };
        state.next.set(byte, next);
        all.push(next);
      }
      state = next;
    }
    if (state !== start) state.ends = { string, length: state.depth };
  }
  // Shorter prefixes come first, since longer ones need their results.
  for (const state of all.sort((a, b) => a.depth - b.depth)) {
    for (const [byte, next] of state.next)
      next.shorter = (state.shorter && after(state.shorter, byte)) ?? start;
    state.ends ??= state.shorter?.ends;
  }
  return start;
}
