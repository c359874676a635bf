/** Stop strings, found in the bytes of a text as they come: a string may begin in one token and end in another. */
import { utf8 } from '../tokenizer/token-bytes.js';

/** Where a text stops. */
export interface StopMatch {
  readonly string: string;
  /** Byte at which the string begins. */
  readonly begin: number;
  /** Byte after its last one. */
  readonly end: number;
}

/**
 * The stop string that ends first, and of those that end together the longest: the same whatever pieces the text comes
 * in. One for each text.
 */
export class StopMatcher {
  private readonly strings: readonly { readonly string: string; readonly bytes: Uint8Array }[];
  /** The last bytes of the text, as many as the longest string has. */
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
   * Adds bytes to the text; its stop, once there is one. What comes after a stop changes nothing.
   *
   * @param counts false: a stop string that ends in these bytes is text like other
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

  /** How many of the last bytes may be the beginning of a stop string: not to be shown before more is known. */
  get pending(): number {
    if (this.match) return 0;
    let most = 0;
    for (const { bytes } of this.strings) {
      for (let length = Math.min(bytes.length - 1, this.tail.length); length > most; length--)
        if (this.endsWith(bytes, length)) most = length;
    }
    return most;
  }

  /** Whether the text ends with the first `length` bytes. */
  private endsWith(bytes: Uint8Array, length: number): boolean {
    if (length > this.tail.length) return false;
    const begin = this.tail.length - length;
    for (let i = length - 1; i >= 0; i--) if (this.tail[begin + i] !== bytes[i]) return false;
    return true;
  }
}
