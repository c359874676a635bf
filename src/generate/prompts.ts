/** Prompts: texts and conversations as tokens. */
import { badTokenizer } from '../files/data-error.js';
import type { ChatMessage, ChatTemplateOptions, Tokenizer } from '../tokenizer/tokenizer.js';

/** A text to continue, or messages for a chat template. */
export type Prompt = string | readonly ChatMessage[];

/**
 * Tokens of a prompt. A text begins with what the tokenizer puts before every text, once; messages are written by the chat
 * template, up to the opening of the reply.
 *
 * @param options of the template
 * @throws DataError for an empty text where the tokenizer has no token that begins one; where there is no chat template
 */
export function promptTokens(
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: ChatTemplateOptions = {},
): number[] {
  if (typeof prompt !== 'string') return chatTokens(tokenizer, prompt, options).ids;
  const ids = withPrefix(tokenizer, tokenizer.encode(prompt, { addSpecialTokens: false }));
  if (ids.length > 0) return ids;
  if (tokenizer.bosId !== undefined) return [tokenizer.bosId];
  throw badTokenizer(
    'the prompt is empty, and the tokenizer has no token that begins a text; write at least one character',
  );
}

/**
 * A conversation up to the opening of the reply, and the text that the template made of it.
 *
 * @param options of the template; `addGenerationPrompt` is true unless they say otherwise
 * @param check is called with the text before it is tokenised, and may throw
 */
export function chatTokens(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options: ChatTemplateOptions = {},
  check: (text: string) => void = () => {},
): { readonly ids: number[]; readonly text: string } {
  const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true, ...options });
  check(text);
  return { ids: tokenizer.encode(text, { addSpecialTokens: false }), text };
}

/** Tokens of a text behind those that the tokenizer puts before every text. A text that a chat template wrote may have them already. */
export function withPrefix({ prefixIds }: Pick<Tokenizer, 'prefixIds'>, ids: number[]): number[] {
  const has = prefixIds.every((id, i) => ids[i] === id);
  return has ? ids : [...prefixIds, ...ids];
}
