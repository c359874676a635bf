// The token that ends a reply: training appends it, and sampling stops at it.
import { DataError } from '../files/data-error.js';
import type { Tokenizer } from './tokenizer.js';

export interface ReplyEnd {
  /** The token that ends replies; undefined where there is none. */
  readonly id: number | undefined;
  /** The text that the chat template writes behind a reply where that holds no such token; the end of text follows it then. */
  readonly text?: string;
}

/** Stands for a reply. No template changes letters. */
const REPLY = 'STEPTRAINREPLY';

/**
 * The token that ends a reply of a chat: the first that the chat template writes behind the assistant's content and that is a
 * token of its own, such as `<|im_end|>`, whatever the tokenizer calls its end of text. Without a chat template, or where that
 * writes nothing behind a reply, the end of text.
 */
export function replyEnd(tokenizer: Tokenizer): ReplyEnd {
  const { eosId } = tokenizer;
  const tail = tokenizer.hasChatTemplate ? tailOf(tokenizer) : '';
  if (tail === '') return { id: eosId };
  const ids = tokenizer.encode(tail, { continuation: true });
  const id = ids.length === 1 ? ids[0] : ids.find((each) => isMark(tokenizer, each));
  return id === undefined ? { id: eosId, text: tail } : { id };
}

/** The text that the template writes behind a reply; empty where it refuses so plain a conversation. */
function tailOf(tokenizer: Tokenizer): string {
  const messages = [
    { role: 'user', content: '?' },
    { role: 'assistant', content: REPLY },
  ];
  try {
    const text = tokenizer.applyChatTemplate(messages, { mayLeaveOut: true });
    const at = text.lastIndexOf(REPLY);
    return at < 0 ? '' : text.slice(at + REPLY.length).trimEnd();
  } catch (error) {
    if (error instanceof DataError) return '';
    throw error;
  }
}

/** Some files do not call their marks special. */
function isMark(tokenizer: Tokenizer, id: number): boolean {
  return tokenizer.isSpecial(id) || /^<[^<>]{2,}>$/.test(new TextDecoder().decode(tokenizer.tokenBytes(id)));
}

/**
 * The tokens that end a sample: the end of text by the model's configuration and by the tokenizer, and the end of a reply.
 *
 * @param model `vocabSize` bounds the ids
 */
export function endTokens(
  { eosTokenIds, vocabSize }: { readonly eosTokenIds: readonly number[]; readonly vocabSize: number },
  tokenizer: Tokenizer,
): number[] {
  const all = [...eosTokenIds, tokenizer.eosId, replyEnd(tokenizer).id];
  return [...new Set(all)].filter((id): id is number => id !== undefined && id < vocabSize);
}

/** One sentence where the chat template ends replies with text, or where nothing ends them; else none. */
export function replyEndWarning(tokenizer: Tokenizer): string[] {
  const { id, text } = replyEnd(tokenizer);
  const shown = text === undefined ? '' : JSON.stringify(text.slice(0, 40));
  if (id === undefined)
    return [
      `no token ends what is learned${text === undefined ? '' : ` (the chat template writes ${shown}, which is none of the tokenizer's)`}: ` +
        'samples go on up to their most tokens; name an eos_token in tokenizer_config.json',
    ];
  return text === undefined
    ? []
    : [
        `the chat template ends replies with ${shown}, which is no token of the tokenizer: it is learned as text, and the end-of-text token after it`,
      ];
}
