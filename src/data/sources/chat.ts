// Conversations in rows: lists of turns, with the words that each tool has for the speakers.
import type { Message } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, describeValue, isRow } from '../columns.js';

const SPEAKERS: Readonly<Record<string, string>> = { human: 'user', gpt: 'assistant', observation: 'tool' };

/** Turns as `{role, content}` or as ShareGPT's `{from, value}`. @throws BadRow for anything else */
export function messagesOf(value: unknown, where: string): Message[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw new BadRow('wrong_type', `${where} holds ${describeValue(value)}; expected a list of messages`);
  }
  return value.map((turn, i) => messageOf(turn, `message ${i + 1} of ${where}`));
}

/** One turn. */
export function messageOf(turn: unknown, where: string): Message {
  if (!isRow(turn)) {
    throw new BadRow(
      'wrong_type',
      `${where} is ${describeValue(turn)}; expected an object with role and content`,
    );
  }
  const role = checkedText(turn.role ?? turn.from, `the role of ${where}`);
  const content = checkedText(turn.content ?? turn.value, `the content of ${where}`);
  return { role: SPEAKERS[role] ?? role, content };
}

/** The prompt, and the reply that must end the conversation. */
export function splitReply(
  messages: readonly Message[],
  where: string,
): { readonly prompt: readonly Message[]; readonly reply: string } {
  const last = messages.at(-1);
  if (messages.length < 2 || last?.role !== 'assistant') {
    throw new BadRow(
      'no_reply',
      `${where} ends with ${last ? `a message of ${JSON.stringify(last.role)}` : 'nothing'}; expected a prompt and then a reply of "assistant"`,
    );
  }
  return { prompt: messages.slice(0, -1), reply: last.content };
}

/** The text that identifies a prompt, for splits and overlap: what the user said last. */
export function questionOf(prompt: string | readonly Message[]): string {
  if (typeof prompt === 'string') return prompt;
  return prompt.findLast(({ role }) => role === 'user')?.content ?? (prompt.at(-1) as Message).content;
}
