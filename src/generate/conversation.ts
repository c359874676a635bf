/**
 * A conversation turn by turn. A reply keeps the tokens that the model drew: tokenising its text again may give other
 * tokens, and then its cached keys and values could not be reused.
 */
import { openedReasoning } from '../tokenizer/chat-reply.js';
import { MessageLeftOut } from '../tokenizer/chat-template.js';
import type { ChatMessage, Tokenizer } from '../tokenizer/tokenizer.js';
import { chatTokens } from './prompts.js';

interface Turn {
  /** All tokens so far, the reply included. */
  readonly ids: readonly number[];
  /** The messages' text by the template, without the end of the reply. */
  readonly text: string;
  /** The special token that ended the reply, as text. */
  readonly end: string;
}

function leavesOutHistory(tokenizer: Tokenizer): boolean {
  const messages = [
    { role: 'user', content: 'A' },
    { role: 'assistant', content: 'B' },
    { role: 'user', content: 'C' },
  ];
  try {
    tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
    return false;
  } catch (error) {
    return error instanceof MessageLeftOut;
  }
}

export class Conversation {
  /** Whether the template leaves earlier turns out, so that each message is asked by itself. */
  readonly forgets: boolean;

  private messages: ChatMessage[];
  private asked: { readonly ids: readonly number[]; readonly text: string } = { ids: [], text: '' };
  private last: Turn | undefined;

  /** The part of the reply that the template has already written: `<think>` where it opens the reasoning itself. */
  get opened(): string {
    return openedReasoning(this.asked.text)?.mark ?? '';
  }

  /** @param system the system message, if any */
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly system?: string,
  ) {
    this.messages = this.opening();
    this.forgets = leavesOutHistory(tokenizer);
  }

  /** Adds a message of the user and returns the tokens of the prompt for the reply. */
  ask(content: string): readonly number[] {
    if (this.forgets) this.reset();
    const { tokenizer, last } = this;
    this.messages.push({ role: 'user', content });
    const { ids, text } = chatTokens(tokenizer, this.messages);
    // Some templates rewrite earlier replies, for example to drop their thinking.
    const follows = last !== undefined && text.startsWith(last.text);
    let rest = follows ? text.slice(last.text.length) : '';
    if (last && rest.startsWith(last.end)) rest = rest.slice(last.end.length);
    const own = follows ? [...last.ids, ...tokenizer.encode(rest, { continuation: true })] : ids;
    this.asked = { ids: own, text };
    return own;
  }

  /** Adds the reply: its tokens and its text. In the history it has the beginning that the template wrote. */
  answer(tokens: readonly number[], text: string): void {
    this.messages.push({ role: 'assistant', content: this.opened + text });
    const final = tokens.at(-1);
    const end = final !== undefined && this.tokenizer.isSpecial(final) ? this.tokenizer.decode([final]) : '';
    this.last = { ids: [...this.asked.ids, ...tokens], text: this.asked.text + text, end };
  }

  /** Forgets all turns. */
  reset(): void {
    this.messages = this.opening();
    this.asked = { ids: [], text: '' };
    this.last = undefined;
  }

  private opening(): ChatMessage[] {
    return this.system === undefined ? [] : [{ role: 'system', content: this.system }];
  }
}
