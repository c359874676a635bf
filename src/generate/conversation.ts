/**
 * A conversation turn by turn. What the model said stays the tokens that it said: a text made into tokens again may be cut
 * elsewhere, and nothing that was computed for it could be used again.
 */
import type { ChatMessage, Tokenizer } from '../tokenizer/tokenizer.js';
import { chatTokens } from './prompts.js';

interface Turn {
  /** All tokens so far, the reply included. */
  readonly ids: readonly number[];
  /** What the template would have written for them, without what closes the reply. */
  readonly text: string;
  /** The special token that ended the reply, as text. */
  readonly end: string;
}

export class Conversation {
  private messages: ChatMessage[];
  private asked: { readonly ids: readonly number[]; readonly text: string } = { ids: [], text: '' };
  private last: Turn | undefined;

  /** @param system what the model is told before everything else */
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly system?: string,
  ) {
    this.messages = this.opening();
  }

  /** Adds what the user says; the tokens that the reply follows. */
  ask(content: string): readonly number[] {
    const { tokenizer, last } = this;
    this.messages.push({ role: 'user', content });
    const { ids, text } = chatTokens(tokenizer, this.messages);
    // Some templates rewrite earlier replies, such as by leaving out what was thought before them.
    const follows = last !== undefined && text.startsWith(last.text);
    let rest = follows ? text.slice(last.text.length) : '';
    if (last && rest.startsWith(last.end)) rest = rest.slice(last.end.length);
    const own = follows ? [...last.ids, ...tokenizer.encode(rest, { continuation: true })] : ids;
    this.asked = { ids: own, text };
    return own;
  }

  /** Adds the reply: what was drawn, and its text. */
  answer(tokens: readonly number[], text: string): void {
    this.messages.push({ role: 'assistant', content: text });
    const final = tokens.at(-1);
    const end = final !== undefined && this.tokenizer.isSpecial(final) ? this.tokenizer.decode([final]) : '';
    this.last = { ids: [...this.asked.ids, ...tokens], text: this.asked.text + text, end };
  }

  /** Begins anew. */
  reset(): void {
    this.messages = this.opening();
    this.last = undefined;
  }

  private opening(): ChatMessage[] {
    return this.system === undefined ? [] : [{ role: 'system', content: this.system }];
  }
}
