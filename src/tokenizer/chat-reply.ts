// A reply as the chat template writes it, after the opening of its turn.
import { badTemplate, type DataError } from '../files/data-error.js';
import type { ChatMessage, ChatTemplateOptions, Tokenizer } from './tokenizer.js';

/** Names that templates have for the reasoning before a reply. */
const REASONING = ['reasoning_content', 'thinking', 'reasoning'] as const;

/** Names under which every reasoning is given, as in transformers. */
const ALIASES = ['reasoning_content', 'thinking'];

/**
 * Refuses data that the template does not read, since it would be lost silently.
 *
 * @throws DataError that names the variable, tools, reasoning or tool calls
 */
export function checkRead(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  { tools, variables = {} }: ChatTemplateOptions,
): void {
  const has = (key: string) => messages.some((message) => message[key] !== undefined);
  const reads = (name: string) => tokenizer.templateReads?.(name) === true;
  const unread = Object.keys(variables).find((name) => tokenizer.templateReads?.(name, 'variable') !== true);
  const lost =
    unread ??
    [...(tools ? ['tools'] : []), ...[...REASONING, 'tool_calls'].filter(has)].find(
      (name) => !(reads(name) || (REASONING.includes(name as never) && ALIASES.some(reads))),
    );
  if (lost === undefined) return;
  const other = REASONING.includes(lost as never) ? REASONING.find(reads) : undefined;
  throw badTemplate(
    `the chat template does not read ${lost.slice(0, 80)}, so that the model would never see it; ` +
      (other ? `it reads ${other}: rename it` : 'remove it, or take a model whose template reads it'),
  );
}

/** A content that no template writes itself. */
export const PLACEHOLDER = '\u{E000}content\u{E000}';

/** The texts that follow the opening of the assistant's turn. */
export interface ChatReply {
  /** The end of the prompt, before the pieces below. */
  readonly opening: string;
  /** Text before the content: reasoning and its marks. */
  readonly head: string;
  /** The content, without the text that the opening already has. */
  readonly content: string;
  /**
   * Text after the content, up to the mark that ends the turn; empty where the template has none or rewrites the reply.
   */
  readonly tail: string;
}

/**
 * The text that a model must write after `prompt` so that the conversation is the template's with the reply in it.
 * If the template opens the reasoning itself (`<think>`), the reply does not repeat that. If the template writes
 * replies otherwise than it opens them (some leave out past reasoning), or leaves out a part of the reply, the content
 * follows the opening as it is.
 *
 * @throws DataError for reasoning or tool calls that the template does not write
 */
export function chatReply(
  tokenizer: Tokenizer,
  prompt: readonly ChatMessage[],
  reply: ChatMessage,
  options: ChatTemplateOptions = {},
): ChatReply {
  const opening = tokenizer.applyChatTemplate(prompt, { ...options, addGenerationPrompt: true });
  const whole = tokenizer.applyChatTemplate([...prompt, reply], { ...options, mayLeaveOut: true });
  const written = whole.startsWith(opening) ? withoutOpened(whole.slice(opening.length), opening) : undefined;
  const given = String(reply.content ?? '');
  const content = withoutOpened(given, opening);
  checkClosed(opening, content);
  const reasoning = REASONING.map((name) => reply[name]).find((text) => typeof text === 'string') as
    | string
    | undefined;
  /** Finds where the template begins the content, which may stand in its own words too: `hi` in `<think>`. */
  const contentAt = (text: string) => {
    const other = [...prompt, { ...reply, content: PLACEHOLDER }];
    const rendered = tokenizer.applyChatTemplate(other, { ...options, mayLeaveOut: true });
    const own = withoutOpened(rendered.slice(opening.length), opening);
    const place = own.indexOf(PLACEHOLDER);
    return place >= 0 && text.startsWith(own.slice(0, place)) ? place : undefined;
  };
  const after = reasoning === undefined ? 0 : endOf(written ?? '', reasoning.trim());
  if (after < 0 || (written === undefined && reply.tool_calls)) throw lost(reasoning !== undefined);
  for (const text of [content, given]) {
    if (written === undefined) continue;
    const isAgain = written.indexOf(text.trim(), written.indexOf(text.trim(), after) + 1) >= 0;
    const from = text.trim() !== '' && isAgain ? Math.max(after, contentAt(written) ?? 0) : after;
    const at = written.indexOf(text.trim(), from);
    if (at < 0) continue;
    const end = at + text.trim().length;
    if (reasoning === undefined) checkClosed(opening + written.slice(0, at), text);
    return { opening, head: written.slice(0, at), content: text.trim(), tail: written.slice(end).trimEnd() };
  }
  const respaced = written === undefined ? undefined : spacedOtherwise(written, [content, given], after);
  if (respaced) return { opening, ...respaced };
  if (reasoning !== undefined || reply.tool_calls) throw lost(reasoning !== undefined);
  return { opening, head: '', content, tail: '' };
}

/**
 * The reply where the template writes it with other white space alone, or with a mark before it: `<think>a</think>b` as
 * `<think>\na\n</think>\n\nb`.
 */
function spacedOtherwise(
  written: string,
  texts: readonly string[],
  after: number,
): Omit<ChatReply, 'opening'> | undefined {
  const places = [...written.matchAll(/\S/g)].map(({ index }) => index).filter((at) => at >= after);
  const letters = places.map((at) => written[at]).join('');
  for (const text of texts) {
    const plain = text.replace(/\s/g, '');
    const first = letters.indexOf(plain);
    if (plain === '' || first < 0) continue;
    const end = (places[first + plain.length - 1] as number) + 1;
    const at = places[first] as number;
    return {
      head: written.slice(0, at),
      content: written.slice(at, end),
      tail: written.slice(end).trimEnd(),
    };
  }
  return undefined;
}

function endOf(text: string, part: string): number {
  const at = text.indexOf(part);
  return at < 0 ? at : at + part.length;
}

function lost(isReasoning: boolean): DataError {
  return badTemplate(
    isReasoning
      ? 'the chat template does not write the reasoning of the reply after its opening, so that it would not be learned; put it into the content, between the marks of the model, such as <think> and </think>'
      : 'the chat template does not write the tool calls of the reply after its opening, so that they would not be learned',
  );
}

/** The reasoning that a prompt opens at its end, as the templates of DeepSeek-R1 and QwQ do. */
export interface OpenedReasoning {
  /** The mark as the template writes it, with the white space behind it. */
  readonly mark: string;
  /** End of the reasoning, which a reply has to write before its answer. */
  readonly end: string;
}

/** Undefined for a prompt that opens none. */
export function openedReasoning(prompt: string): OpenedReasoning | undefined {
  const [mark, name] = /<(think|thinking|thought|reasoning)>\s*$/.exec(prompt) ?? [];
  return mark === undefined ? undefined : { mark, end: `</${name}>` };
}

const CLOSED_AT_END = /<(think|thinking|thought|reasoning)>\s*<\/\1>\s*$/;
const CLOSED_AT_START = /^\s*<(think|thinking|thought|reasoning)>\s*<\/\1>\s*/;

/** The same, where another one is opened after it. */
const CLOSED_BEFORE = /<(think|thinking|thought|reasoning)>\s*<\/\1>\s*(?:<\1>\s*)?$/;

/**
 * Refuses a reply that reasons where the opening of its turn has closed the reasoning already, as templates do whose thinking is off:
 * it would be learned as a second one.
 *
 * @throws DataError that names the mark
 */
export function checkClosed(opening: string, reply: string): void {
  const [, name] = CLOSED_BEFORE.exec(opening) ?? [];
  if (name === undefined || !reply.includes(`</${name}>`)) return;
  throw badTemplate(
    `the chat template has closed the reasoning before the reply (<${name}></${name}>), and the reply ends one of its own, which would be ` +
      'learned as a second; give it as reasoning_content, let the template think (a column chat_template_kwargs, such as ' +
      '{"enable_thinking": true}), or leave it out of the reply',
  );
}

/** One sentence where solutions or verdicts would be learned inside the reasoning that their prompt opens. */
export function reasoningWarning(prompt: string, advice: string): string[] {
  const opened = openedReasoning(prompt);
  if (!opened) return [];
  return [
    `the chat template opens ${opened.mark.trim()} before what is learned: without ${opened.end} the model learns to answer inside its reasoning; ${advice}`,
  ];
}

/** A text without the tag that it begins with, such as `<think>`, or the empty reasoning, where the prompt ends with the same. */
export function withoutOpened(text: string, prompt: string): string {
  const [closed = '', name] = CLOSED_AT_START.exec(text) ?? [];
  if (name !== undefined && CLOSED_AT_END.exec(prompt)?.[1] === name) return text.slice(closed.length);
  const [, tag, space = ''] = /(<[^<>\s|]+>)(\s*)$/.exec(prompt) ?? [];
  const begin = text.trimStart();
  if (tag === undefined || !begin.startsWith(tag)) return text;
  const rest = begin.slice(tag.length);
  return space === '' ? rest : rest.trimStart();
}
