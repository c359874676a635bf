/**
 * Streams tokens as text. A piece never ends inside a character or inside a possible stop string; the pieces together are
 * the text of all tokens up to the stop.
 */
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { StopMatcher } from './stops.js';

export interface DetokenizerOptions {
  /** Stop strings: the text ends before the first of them. */
  readonly stop?: readonly string[];
  /** Leave special tokens out of the text. Default true. */
  readonly skipSpecialTokens?: boolean;
}

/** Bytes of a token. */
interface Piece {
  readonly bytes: readonly number[];
  /** Whether a stop string that ends here counts. */
  readonly stops: boolean;
}

/** The text of one sequence of tokens that follows another, its prompt. */
export class Detokenizer {
  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  private readonly matcher: StopMatcher;
  private readonly skip: boolean;
  /** Bytes that were not handed to the decoder, because a stop string may begin there. */
  private held: number[] = [];
  /** The tokens of the number under way, in the order of the text; where the tokens have its last digit first. */
  private digits: Piece[] = [];
  private decoded = 0;
  private ended = false;
  private stop: string | undefined;

  constructor(
    private readonly tokenizer: Pick<Tokenizer, 'tokenBytes' | 'isSpecial' | 'reversesDigits'>,
    { stop = [], skipSpecialTokens = true }: DetokenizerOptions = {},
  ) {
    this.matcher = new StopMatcher(stop);
    this.skip = skipSpecialTokens;
  }

  /** The stop string that was found, if any; nothing is added to the text after it. */
  get stoppedBy(): string | undefined {
    return this.stop;
  }

  /**
   * Adds a token and returns the new text that is certain.
   *
   * @param stops false: a stop string that ends in this token counts as ordinary text
   */
  push(token: number, stops = true): string {
    if (this.ended) return '';
    const bytes = this.skip && this.tokenizer.isSpecial(token) ? [] : [...this.tokenizer.tokenBytes(token)];
    if (this.tokenizer.reversesDigits && bytes.length > 0 && bytes.every(isDigit)) {
      this.digits.unshift({ bytes, stops });
      return '';
    }
    return this.add([...this.digits.splice(0), { bytes, stops }]);
  }

  /** Ends the text and returns the bytes that were held back. */
  end(): string {
    const last = this.ended ? '' : this.add(this.digits.splice(0));
    const length = this.ended ? 0 : this.held.length;
    this.ended = true;
    return last + this.decode(length, false);
  }

  private add(pieces: readonly Piece[]): string {
    for (const { bytes, stops } of pieces) {
      const match = this.matcher.push(bytes, stops);
      this.held.push(...bytes);
      if (!match) continue;
      this.ended = true;
      this.stop = match.string;
      return this.decode(match.begin - this.decoded, false);
    }
    return this.decode(this.held.length - this.matcher.pending, true);
  }

  private decode(count: number, more: boolean): string {
    const bytes = this.held.splice(0, count);
    this.decoded += bytes.length;
    return this.decoder.decode(Uint8Array.from(bytes), { stream: more });
  }
}

const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;

/** The text of `tokens` after a prompt, up to the first stop string. */
export function detokenize(
  tokenizer: Pick<Tokenizer, 'tokenBytes' | 'isSpecial' | 'reversesDigits'>,
  tokens: readonly number[],
  options: DetokenizerOptions = {},
): string {
  const detokenizer = new Detokenizer(tokenizer, options);
  return tokens.map((token) => detokenizer.push(token)).join('') + detokenizer.end();
}
