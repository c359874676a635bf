/** The tokens of a text that tell a number: each with a digit, and the one after them, which tells that it has ended. */
import type { Tokenizer } from './tokenizer.js';

/** Whether a token has a digit; asked for many tokens, so that answers are kept. */
export function digitTokens(tokenizer: Pick<Tokenizer, 'tokenBytes'>): (id: number) => boolean {
  const known = new Map<number, boolean>();
  return (id) => {
    let has = known.get(id);
    if (has === undefined) {
      has = tokenizer.tokenBytes(id).some((byte) => byte >= 0x30 && byte <= 0x39);
      known.set(id, has);
    }
    return has;
  };
}

/** @param hasDigit of {@link digitTokens} */
export function tellsNumber(ids: ArrayLike<number>, at: number, hasDigit: (id: number) => boolean): boolean {
  return hasDigit(ids[at] as number) || (at > 0 && hasDigit(ids[at - 1] as number));
}
