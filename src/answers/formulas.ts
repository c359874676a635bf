// Finds mathematics in a text: between `$`, `$$`, `\(…\)` and `\[…\]`.

export interface Formula {
  readonly at: number;
  readonly end: number;
  /** The formula without its delimiters. */
  readonly text: string;
}

const CLOSING: Readonly<Record<string, string>> = { '\\(': '\\)', '\\[': '\\]', $: '$', $$: '$$' };

/** The formulas of a text in order. An opening sign that nothing closes opens nothing. One pass. */
export function* formulas(text: string): Generator<Formula> {
  // A closing sign that was not found is not searched again.
  const missing = new Set<string>();
  for (let at = 0; at < text.length; at++) {
    if (text[at] !== '$' && text[at] !== '\\') continue;
    const pair = text.slice(at, at + 2);
    const opening = text[at] === '$' && pair !== '$$' ? '$' : pair;
    const closing = CLOSING[opening];
    if (closing === undefined || missing.has(closing)) {
      if (text[at] === '\\') at++;
      continue;
    }
    const start = at + opening.length;
    const end = closingAt(text, closing, start);
    if (end < 0) missing.add(closing);
    else {
      yield { at, end: end + closing.length, text: text.slice(start, end) };
      at = end + closing.length - 1;
    }
  }
}

/** The position of the closing sign; an escaped dollar sign does not close. */
function closingAt(text: string, closing: string, from: number): number {
  let end = text.indexOf(closing, from);
  while (end > 0 && closing === '$' && text[end - 1] === '\\') end = text.indexOf(closing, end + 1);
  return end;
}
