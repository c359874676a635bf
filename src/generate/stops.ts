/** Finds stop strings in streamed bytes: a string may begin in one token and end in another. */
import { utf8 } from '../tokenizer/token-bytes.js';

/** A stop string in a text. */
export interface StopMatch {
  readonly string: string;
  /** Byte at which the string begins. */
  readonly begin: number;
  /** Byte after its last one. */
  readonly end: number;
}

/**
 * Finds the stop string that ends first, and the longest one if several end together; the division of the text into
 * pieces does not matter. One matcher per text.
 */
export class StopMatcher {
  private readonly strings: readonly { readonly string: string; readonly bytes: Uint8Array }[];
  /** The last bytes of the text, as many as the longest string. */
  private tail: number[] = [];
  private length = 0;
  private match: StopMatch | undefined;

  constructor(strings: readonly string[]) {
    this.strings = strings
      .map((string) => ({ string, bytes: utf8(string) }))
      .filter(({ bytes }) => bytes.length > 0)
      .sort((a, b) => b.bytes.length - a.bytes.length);
  }

  /**
   * Adds bytes to the text and returns its stop, once there is one. Bytes after a stop change nothing.
   *
   * @param counts false: a stop string that ends in these bytes counts as ordinary text
   */
  push(bytes: ArrayLike<number>, counts = true): StopMatch | undefined {
    const longest = this.strings[0]?.bytes.length ?? 0;
    for (let i = 0; i < bytes.length && !this.match; i++) {
      this.tail.push(bytes[i] as number);
      if (this.tail.length > longest) this.tail.shift();
      this.length++;
      if (!counts) continue;
      const found = this.strings.find((stop) => this.endsWith(stop.bytes, stop.bytes.length));
      if (!found) continue;
      const { string } = found;
      this.match = { string, begin: this.length - found.bytes.length, end: this.length };
    }
    return this.match;
  }

  /** How many of the last bytes may begin a stop string and so must be held back. */
  get pending(): number {
    if (this.match) return 0;
    let longest = 0;
    for (const { bytes } of this.strings) {
      for (let length = Math.min(bytes.length - 1, this.tail.length); length > longest; length--)
        if (this.endsWith(bytes, length)) longest = length;
    }
    return longest;
  }

  /** Whether the text ends with the first `length` bytes. */
  private endsWith(bytes: Uint8Array, length: number): boolean {
    if (length > this.tail.length) return false;
    const begin = this.tail.length - length;
    for (let i = length - 1; i >= 0; i--) if (this.tail[begin + i] !== bytes[i]) return false;
    return true;
  }
}
