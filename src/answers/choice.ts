// Multiple choice: `(C)`, `(c)`, `C)`, `\textbf{C}`, `(D) Alina`, `C Cecile`.

export interface Choice {
  readonly letter: string;
  /** The text after the letter, or an empty one. */
  readonly rest: string;
  /** Marked as a choice by brackets or a full stop. */
  readonly marked: boolean;
}

/** The choice that a plain form names, or undefined. */
export function choiceOf(plainForm: string): Choice | undefined {
  const text = plainForm
    .replace(/\\(?:mathbf|boldsymbol)\{([^{}]*)\}/g, '$1')
    .replace(/[{}]/g, '')
    .trim();
  const bare = /^([A-Z])$/.exec(text);
  if (bare !== null) return { letter: bare[1]!, rest: '', marked: false };
  const small = /^\(([a-z])\)$/.exec(text);
  if (small !== null) return { letter: small[1]!.toUpperCase(), rest: '', marked: true };
  const bracketed = /^\(([A-Z])\)\s*(.*)$/s.exec(text) ?? /^([A-Z])(?:\)|\.(?=\s))\s*(.*)$/s.exec(text);
  // `(A) and (B)` is not A.
  if (bracketed !== null && /^(?:(?:and|or|,|;|&|\/)\s*\(?[A-Z]\b|\([A-Z]\))/.test(bracketed[2]!.trim()))
    return undefined;
  if (bracketed !== null) return { letter: bracketed[1]!, rest: bracketed[2]!.trim(), marked: true };
  const named = /^([A-J]) ((?:\p{Lu}\p{Ll}+ ?)+)$/u.exec(text);
  return named === null ? undefined : { letter: named[1]!, rest: named[2]!.trim(), marked: false };
}

/** The letter that a text names where a letter is expected: also small ones, and one before the words of its choice. */
export function letterOf(text: string): string | undefined {
  const bare = text
    .replace(/\\(?:text|textbf|mathrm|mathbf|boldsymbol)\{([^{}]*)\}/g, '$1')
    .replace(/\\[ ,;:!]|~/g, ' ')
    .replace(/[*_`$]/g, '');
  return /^\s*\(?([A-Z])\s?\)?(?:\s*[.:]?\s*$|[).:]\s+(?!(?:and|or)\b|[&/,;(]))/i
    .exec(bare)?.[1]
    ?.toUpperCase();
}

/** Whether both are the same choice; undefined if the letters do not decide. */
export function sameChoice(a: string, b: string): boolean | undefined {
  const [left, right] = [choiceOf(a), choiceOf(b)];
  if (left === undefined || right === undefined) return undefined;
  if (left.letter !== right.letter)
    return left.marked || right.marked || left.rest + right.rest !== '' ? false : undefined;
  const isLetterAlone = left.rest === '' || right.rest === '';
  return isLetterAlone ? true : undefined;
}
