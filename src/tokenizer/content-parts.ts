/** Contents of several texts: a list of parts for templates that read one, and lines of one text for others. */
import type { ChatMessage } from './tokenizer.js';

type Messages = readonly ChatMessage[];

/** A content that nothing else has, and that no template rewrites. */
export const numbered = (at: number) => `90417${at}60293`;

/** A list as Python prints it, or as JSON. */
const PRINTED = /["']text["']\s*:\s*["']90417/;

/**
 * The fields of a message for the texts of its content: one text, in which a line break stands between them as with vLLM and
 * llama.cpp, and beside it the texts for templates that read each. Empty ones say nothing.
 */
export function contentOf(texts: readonly string[]): {
  readonly content: string;
  readonly parts?: readonly string[];
} {
  const parts = texts.filter((text) => text !== '');
  return { content: parts.join('\n'), ...(parts.length > 1 ? { parts } : {}) };
}

/** Whether a value can be the texts of a content. */
export const areParts = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.length > 1 && value.every((text) => typeof text === 'string');

/** The texts of a content, or its one text; none where it is no text. */
export function textsOf({ content, parts }: ChatMessage): readonly string[] {
  if (typeof content !== 'string') return [];
  return areParts(parts) && parts.join('\n') === content ? parts : [content];
}

/**
 * Gives each message its content as the template reads it. What a template reads of one message of a role, it reads of all.
 *
 * @param written the text of the template
 */
export function contentReader(messages: Messages, written: (messages: Messages) => string) {
  const asked = new Map<string, boolean>();
  const plain = messages.map((message) => withContent(message, false));
  messages.forEach((message, at) => {
    const texts = textsOf(message);
    if (texts.length < 2 || asked.has(message.role)) return;
    const marked = { ...message, ...contentOf(texts.map((_, i) => numbered(i))) };
    try {
      const shown = written(plain.with(at, withContent(marked, true)));
      asked.set(message.role, texts.every((_, i) => shown.includes(numbered(i))) && !PRINTED.test(shown));
    } catch {
      // A template that knows texts alone may refuse a list.
      asked.set(message.role, false);
    }
  });
  return (message: ChatMessage) => withContent(message, asked.get(message.role) === true);
}

function withContent(message: ChatMessage, inParts: boolean): ChatMessage {
  const texts = textsOf(message);
  if (texts.length < 2) return message;
  const { parts: _, ...rest } = message;
  return inParts ? { ...rest, content: texts.map((text) => ({ type: 'text', text })) } : rest;
}
