/** Finds the turns of the assistant in a conversation that a chat template has rendered. */
import { badTemplate } from '../files/data-error.js';
import { checkRead, PLACEHOLDER } from './chat-reply.js';
import type { ChatMessage, ChatTemplateOptions, Tokenizer } from './tokenizer.js';

/** The text of a conversation, cut at its turns: `opening`, then `text` and `after` of each turn, joined, are what the template writes. */
export interface ChatTurns {
  /** Up to the first turn, the opening of the assistant's message included. */
  readonly opening: string;
  readonly turns: readonly {
    /** The text that the model writes, up to the mark that ends its message, that included. */
    readonly text: string;
    /** The text that comes back, up to the beginning of the next turn. */
    readonly after: string;
  }[];
}

/**
 * Cuts the text of a conversation at its messages of the assistant. Templates that shorten earlier turns, as by leaving out past
 * reasoning, are followed: the text is that of the whole conversation.
 *
 * @throws DataError for fields that the template does not read, and where turns cannot be told from the text
 */
export function chatTurns(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options: ChatTemplateOptions = {},
): ChatTurns {
  checkRead(tokenizer, messages, options);
  const whole = tokenizer.applyChatTemplate(messages, options);
  const places: (readonly [start: number, end: number])[] = [];
  messages.forEach((message, i) => {
    if (message.role !== 'assistant') return;
    const from = places.at(-1)?.[1] ?? 0;
    const start = startOf(tokenizer, messages.slice(0, i), whole, from, options);
    const written = tokenizer.applyChatTemplate(messages.slice(0, i + 1), options).trimEnd();
    const said = (at: number) => contentEnd(tokenizer, messages, i, whole, at, options);
    const tailOf = () => contentTail(tokenizer, messages.slice(0, i + 1), options);
    const end = start === undefined ? undefined : endOf(whole, written, start, message, said, tailOf);
    const asked = messages[i - 1]?.role === 'user' ? String(messages[i - 1]?.content ?? '').trim() : '';
    const isApart = start !== undefined && whole.slice(from, start).includes(asked);
    if (start === undefined || end === undefined || start < from || end < start || !isApart)
      throw badTemplate(
        `the chat template writes message ${i + 1} otherwise within the conversation than at its end, so that the turn cannot be told ` +
          'from its text; take a model whose template only adds text for further messages',
      );
    places.push([start, end]);
  });
  return {
    opening: whole.slice(0, places[0]?.[0] ?? whole.length),
    turns: places.map(([start, end], t) => ({
      text: whole.slice(start, end),
      after: whole.slice(end, places[t + 1]?.[0] ?? whole.length),
    })),
  };
}

/** The text that a template writes after a reply for `message` and the opening of the next reply. */
export function afterReply(
  tokenizer: Tokenizer,
  message: ChatMessage,
  options: ChatTemplateOptions = {},
): string {
  const before = [
    { role: 'user', content: 'A' },
    { role: 'assistant', content: 'B' },
  ];
  return afterTurn(tokenizer, before, [message], options);
}

/**
 * The text from the end of the turn with which `before` ends, its mark included, over `results` to the opening of the next turn.
 *
 * @throws DataError where the template rewrites the turn so that its end cannot be told
 */
export function afterTurn(
  tokenizer: Tokenizer,
  before: readonly ChatMessage[],
  results: readonly ChatMessage[],
  options: ChatTemplateOptions = {},
): string {
  const written = tokenizer.applyChatTemplate(before, options).trimEnd();
  const whole = tokenizer.applyChatTemplate([...before, ...results], {
    ...options,
    addGenerationPrompt: true,
  });
  if (whole.startsWith(written)) return whole.slice(written.length);
  // The last lines of the turn are found again, from as many as there are on.
  for (let at = alikeLength(whole, written); at >= 0 && at < written.length; at = nextLine(written, at)) {
    const lines = written.slice(at);
    const found = whole.lastIndexOf(lines);
    if (lines.trim() !== '' && found >= 0) return whole.slice(found + lines.length);
  }
  throw badTemplate(
    'the chat template writes a turn otherwise once a message follows it, so that its end cannot be told',
  );
}

/** The start of the reply that follows `before`; undefined if it cannot be found. */
function startOf(
  tokenizer: Tokenizer,
  before: readonly ChatMessage[],
  whole: string,
  from: number,
  options: ChatTemplateOptions,
): number | undefined {
  const opened = tokenizer.applyChatTemplate(before, { ...options, addGenerationPrompt: true });
  if (whole.startsWith(opened)) return opened.length;
  // The template writes what is before, or the opening, otherwise by now.
  const bare = tokenizer.applyChatTemplate(before, options);
  const end = endIn(whole, bare, from);
  if (end === undefined || !opened.startsWith(bare)) return undefined;
  const opening = opened.slice(bare.length);
  const rest = whole.slice(end, end + opening.length);
  if (rest === opening) return end + opening.length;
  // Some openings end with the marks of an empty reasoning, which the reply itself may not have.
  const alike = wholeMarks(opening.slice(0, alikeLength(opening, rest)));
  return alike.length === 0 ? undefined : end + alike.length;
}

/**
 * Finds the end of the content of message `i`, whose reply begins at `start` in `whole`: by its place, as the words of the template may hold
 * a short one too. Undefined where there is no content, or the template rewrites it.
 */
function contentEnd(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  i: number,
  whole: string,
  start: number,
  options: ChatTemplateOptions,
): number | undefined {
  const message = messages[i] as ChatMessage;
  const content = String(message.content ?? '').trim();
  const other = messages.with(i, { ...message, content: PLACEHOLDER });
  const rendered = tokenizer.applyChatTemplate(other, { ...options, mayLeaveOut: true });
  const place = rendered.indexOf(PLACEHOLDER);
  const at = place < start ? -1 : whole.indexOf(content, place);
  if (content === '' || at < 0 || !whole.startsWith(rendered.slice(0, place))) return undefined;
  return whole.slice(place, at).trim() === '' ? at + content.length : undefined;
}

/**
 * The end of the reply `message`, which begins at `start` in `whole`; `written` ends with that reply.
 *
 * @param said the end of its content for a start, where it can be told
 * @param tailOf what the template writes after a content at the end
 */
function endOf(
  whole: string,
  written: string,
  start: number,
  message: ChatMessage,
  said: (start: number) => number | undefined,
  tailOf: () => string | undefined,
): number | undefined {
  if (whole.startsWith(written)) return written.length;
  const rest = whole.slice(start);
  const alike = wholeMarks(rest.slice(0, alikeLength(rest, written.slice(start))), '<');
  const content = String(message.content ?? '').trim();
  const end = said(start);
  // At the end of the conversation another mark, or a further one, ends the reply.
  if (end !== undefined && message.tool_calls === undefined && start + alike.length >= end) {
    const own = alike.trimEnd();
    const mark = own.endsWith(content) ? (/^\s*<[^<>\n]{1,40}>/.exec(rest.slice(own.length))?.[0] ?? '') : '';
    return start + own.length + mark.length;
  }
  // The text after the content ends the turn alike, at the end of the conversation and within it.
  const tail = end === undefined ? undefined : tailOf();
  if (end !== undefined && tail && whole.startsWith(tail, end)) return end + tail.length;
  return endIn(whole, written, end ?? start);
}

/** Finds the text that a template writes after the content of the last message; undefined where it rewrites that. */
function contentTail(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options: ChatTemplateOptions,
): string | undefined {
  const other = messages.with(-1, { ...(messages.at(-1) as ChatMessage), content: PLACEHOLDER });
  const rendered = tokenizer.applyChatTemplate(other, { ...options, mayLeaveOut: true });
  const place = rendered.lastIndexOf(PLACEHOLDER);
  return place < 0 ? undefined : rendered.slice(place + PLACEHOLDER.length).trimEnd();
}

/** A text without a mark that is cut off at its end: up to its last line break or `>`, or before the last `<` alone. */
function wholeMarks(text: string, cut?: '<'): string {
  if (cut)
    return text.slice(0, text.lastIndexOf('<') > text.lastIndexOf('>') ? text.lastIndexOf('<') : undefined);
  return text.slice(0, Math.max(text.lastIndexOf('\n'), text.lastIndexOf('>')) + 1);
}

/**
 * The end of `part` in `whole`, not before `from`. If `whole` does not begin with `part`, its last lines count, as many
 * as there are.
 */
function endIn(whole: string, part: string, from: number): number | undefined {
  if (whole.startsWith(part) && part.length >= from) return part.length;
  for (let at = alikeLength(whole, part); at >= 0 && at < part.length; at = nextLine(part, at)) {
    const lines = part.slice(at);
    if (lines.trim() === '') return undefined;
    const found = whole.indexOf(lines, Math.max(0, from - lines.length));
    if (found >= 0) return found + lines.length;
  }
  return undefined;
}

function nextLine(text: string, at: number): number {
  const line = text.indexOf('\n', at);
  return line < 0 ? -1 : line + 1;
}

function alikeLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}
