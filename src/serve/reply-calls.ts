/** Calls of functions in a reply, as OpenAI's API has them beside the content. */
import { randomUUID } from 'node:crypto';
import { readTurn } from '../environments/calls.js';
import { exactText } from '../files/exact-json.js';
import type { FinishReason } from '../generate/rows/sample-row.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

export interface ReplyCall {
  /** Nine letters and digits, which Mistral's templates ask for. */
  readonly id: string;
  readonly type: 'function';
  /** The arguments are JSON in a text. */
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface CallingReply {
  /** Text beside the calls. */
  readonly content: string;
  readonly calls: readonly ReplyCall[];
}

/** The beginnings of calls; a reply that begins with the last one, or with a brace, may be one as a whole. */
const MARKS = ['<tool_call>', '[TOOL_CALLS]', '<|python_tag|>'];
const OPENS_CALL = /^(?:\{|<\|python_tag\|>)/;
const THOUGHT = '</think>';

/** Returns the tokenizer by which the text of a reply has the marks of calls, some of which are special tokens. */
export const withMarks = (
  tokenizer: Tokenizer,
): Pick<Tokenizer, 'tokenBytes' | 'isSpecial' | 'reversesDigits'> => ({
  tokenBytes: (id) => tokenizer.tokenBytes(id),
  isSpecial: (id) =>
    tokenizer.isSpecial(id) && !MARKS.includes(Buffer.from(tokenizer.tokenBytes(id)).toString()),
  ...(tokenizer.reversesDigits ? { reversesDigits: true } : {}),
});

/**
 * Reads the calls of a whole reply, in the forms of `readTurn`. A reply that was cut off, or of which a call cannot be read, is content alone:
 * nothing of it is lost. A call in the reasoning is none.
 */
export function replyWithCalls(
  text: string,
  tools: readonly unknown[],
  finishReason: FinishReason | null,
): CallingReply {
  const at = answerAt(text);
  const { calls, unread } = readTurn(text.slice(at), tools);
  if (finishReason !== 'stop' || calls.length === 0 || unread.length > 0) return { content: text, calls: [] };
  const begin = certainLength(text);
  const { text: said } = readTurn(text.slice(begin), tools);
  return {
    content: [text.slice(0, begin), said].filter((part) => part !== '').join('\n'),
    calls: calls.map(({ name, arguments: given }) => ({
      id: randomUUID().replaceAll('-', '').slice(0, 9),
      type: 'function',
      function: { name, arguments: exactText(given) },
    })),
  };
}

/** Returns where the answer after the reasoning begins. */
function answerAt(text: string): number {
  const thought = text.lastIndexOf(THOUGHT);
  return thought < 0 ? 0 : thought + THOUGHT.length;
}

/** Number of characters of a reply under way that are content whatever follows: a call may begin behind them. */
function certainLength(text: string): number {
  const at = answerAt(text);
  const answer = text.slice(at);
  if (OPENS_CALL.test(answer.trimStart())) return at;
  const found = MARKS.map((mark) => answer.indexOf(mark)).filter((place) => place >= 0);
  const end = found.length > 0 ? Math.min(...found) : answer.length - begun(answer);
  return at + answer.slice(0, end).trimEnd().length;
}

/** Number of characters at the end of a text that may become a mark. */
const begun = (text: string): number =>
  Math.max(
    ...MARKS.map((mark) => {
      const lengths = Array.from({ length: mark.length - 1 }, (_, i) => mark.length - 1 - i);
      return lengths.find((length) => text.endsWith(mark.slice(0, length))) ?? 0;
    }),
  );

/** A reply that arrives in pieces: the pieces of its content, together that of {@link replyWithCalls}, and its calls at the end. */
export class ReplyReader {
  private text = '';
  private sent = 0;

  constructor(private readonly tools: readonly unknown[]) {}

  push(piece: string, finishReason: FinishReason | null): CallingReply {
    this.text += piece;
    const whole = finishReason === null ? undefined : replyWithCalls(this.text, this.tools, finishReason);
    const known = whole?.content ?? this.text.slice(0, certainLength(this.text));
    const content = known.slice(this.sent);
    this.sent = Math.max(this.sent, known.length);
    return { content, calls: whole?.calls ?? [] };
  }
}
