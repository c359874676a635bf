/** Log-probabilities of tokens in OpenAI's two formats: for completions and for chat completions. */
import type { TokenLogprob } from '../generate/step/drawn.js';
import { attempt } from '../native/attempt.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/** A token and its alternatives; the first token of a prompt has no log-probability. */
export interface ScoredToken {
  readonly token: number;
  readonly logprob: number | undefined;
  readonly alternatives?: readonly TokenLogprob[] | undefined;
}

/** JSON has no −Infinity; vLLM writes this value instead. */
const LEAST = -9999;

type Written = (token: number) => string;

/** Writes tokens as text, or by their ids. */
export function tokenWriter(tokenizer: Pick<Tokenizer, 'tokenBytes'>, asIds: boolean): Written {
  return asIds ? (token) => `token_id:${token}` : (token) => textOf(tokenizer.tokenBytes(token));
}

export interface TextLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly (number | null)[];
  readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[];
  /** Offset of each token in the text, in characters as Python counts them. */
  readonly text_offset: readonly number[];
}

/**
 * Counts the characters of a text token by token: code points, as in OpenAI's and vLLM's answers. A character of several
 * tokens appears with the last of them.
 */
export class TextOffsets {
  private end = 0;
  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(private readonly tokenizer: Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>) {}

  /** Offset at which the next token begins. @param isPrompt special tokens of a prompt are part of the text */
  next(token: number, isPrompt: boolean): number {
    const start = this.end;
    if (isPrompt || !this.tokenizer.isSpecial(token))
      this.end += [...this.decoder.decode(this.tokenizer.tokenBytes(token), { stream: true })].length;
    return start;
  }
}

/**
 * Log-probabilities in the shape of /v1/completions.
 *
 * @param count alternatives that were asked for
 * @param offsets of the choice, which counts these tokens
 * @param prompt number of tokens of the prompt, whose special tokens are part of the text
 */
export function textLogprobs(
  scored: readonly ScoredToken[],
  write: Written,
  {
    offsets,
    count,
    prompt,
  }: { readonly offsets: TextOffsets; readonly count: number; readonly prompt: number },
): TextLogprobs {
  return {
    tokens: scored.map(({ token }) => write(token)),
    token_logprobs: scored.map(({ logprob }) => (logprob === undefined ? null : finite(logprob))),
    top_logprobs: scored.map(({ token, logprob, alternatives = [] }) => {
      if (logprob === undefined) return null;
      const written = new Map<string, number>();
      // Two tokens may have the same text: the drawn one counts, then the more likely.
      for (const each of [{ token, logprob }, ...alternatives.slice(0, count)]) {
        const text = write(each.token);
        if (!written.has(text)) written.set(text, finite(each.logprob));
      }
      return Object.fromEntries(written);
    }),
    text_offset: scored.map(({ token }, i) => offsets.next(token, i < prompt)),
  };
}

interface MessageLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

export interface MessageLogprobs {
  readonly content: readonly (MessageLogprob & { readonly top_logprobs: readonly MessageLogprob[] })[];
}

/** The shape of /v1/chat/completions. */
export function messageLogprobs(
  scored: readonly ScoredToken[],
  write: Written,
  tokenizer: Pick<Tokenizer, 'tokenBytes'>,
): MessageLogprobs {
  const entry = (token: number, logprob: number) => ({
    token: write(token),
    logprob: finite(logprob),
    bytes: [...tokenizer.tokenBytes(token)],
  });
  return {
    content: scored.map(({ token, logprob = LEAST, alternatives = [] }) => ({
      ...entry(token, logprob),
      top_logprobs: alternatives.map((each) => entry(each.token, each.logprob)),
    })),
  };
}

export interface PromptLogprob {
  readonly logprob: number;
  readonly decoded_token: string;
}

/**
 * vLLM's shape of the log-probabilities of a prompt: null for the first token, then an object by token id.
 *
 * @param count alternatives that were asked for
 */
export function writtenPromptLogprobs(
  scored: readonly ScoredToken[],
  tokenizer: Pick<Tokenizer, 'tokenBytes'>,
  count: number,
): readonly (Readonly<Record<string, PromptLogprob>> | null)[] {
  // The keys are ids already.
  const write = tokenWriter(tokenizer, false);
  return scored.map(({ token, logprob, alternatives = [] }) => {
    if (logprob === undefined) return null;
    const entries = [...alternatives.slice(0, count), { token, logprob }];
    return Object.fromEntries(
      entries.map((each) => [
        each.token,
        { logprob: finite(each.logprob), decoded_token: write(each.token) },
      ]),
    );
  });
}

function finite(logprob: number): number {
  return Math.max(logprob, LEAST);
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Bytes that are not valid text by themselves are written like OpenAI does: `bytes:\xe2\x80`. */
function textOf(bytes: Uint8Array): string {
  const escaped = (byte: number) => `\\x${byte.toString(16).padStart(2, '0')}`;
  return attempt(() => strict.decode(bytes)) ?? `bytes:${Array.from(bytes, escaped).join('')}`;
}
