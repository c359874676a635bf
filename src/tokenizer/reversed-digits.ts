import { checkText } from '../native/errors.js';
import type { Tokenizer } from './tokenizer.js';

/**
 * A tokenizer whose tokens hold every number with its last digit first, so that a model that writes digit by digit can
 * carry as it goes. Texts keep the order that people write: `encode` turns the digits around, and `decode` turns them back.
 */
export function reversedDigits(tokenizer: Tokenizer): Tokenizer {
  return {
    vocabSize: tokenizer.vocabSize,
    bosId: tokenizer.bosId,
    eosId: tokenizer.eosId,
    padId: tokenizer.padId,
    prefixIds: tokenizer.prefixIds,
    suffixIds: tokenizer.suffixIds,
    hasChatTemplate: tokenizer.hasChatTemplate,
    reversesDigits: true,
    encode(text, options) {
      checkText('encode', text);
      return tokenizer.encode(withDigitsReversed(text), options);
    },
    decode: (ids, options) => withDigitsReversed(tokenizer.decode(ids, options)),
    tokenBytes: (id) => tokenizer.tokenBytes(id),
    isSpecial: (id) => tokenizer.isSpecial(id),
    applyChatTemplate: (messages, options) => tokenizer.applyChatTemplate(messages, options),
    templateReads: (name, as) => tokenizer.templateReads?.(name, as) ?? false,
    save: (directory) => tokenizer.save(directory),
  };
}

/** The text with the digits of each number in reverse; twice is the text itself. */
export function withDigitsReversed(text: string): string {
  return text.replace(/[0-9]{2,}/g, (digits) => [...digits].reverse().join(''));
}
