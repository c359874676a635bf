import { ChatRenderer } from '../../src/tokenizer/chat-template.js';
import type { ChatMessage, Tokenizer } from '../../src/tokenizer/tokenizer.js';

/** As much of a tokenizer as chat templates need. */
export function withTemplate(source: string): Tokenizer {
  const renderer = new ChatRenderer(new Map([['default', source]]), {});
  return {
    applyChatTemplate: (messages: readonly ChatMessage[], options?: object) =>
      renderer.render(messages, options),
    templateReads: (name: string) => renderer.reads(name),
  } as unknown as Tokenizer;
}
