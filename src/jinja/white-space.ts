/** The characters that Python's `str.isspace` knows, for a class of a regular expression. */
export const SPACE = String.raw`\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;

const LEFT = new RegExp(`^[${SPACE}]+`);

/** The text without white space at its beginning. */
export function withoutLeft(text: string): string {
  return text.replace(LEFT, '');
}

/** The text without white space at its end; a pattern would try again at every blank. */
export function withoutRight(text: string): string {
  let end = text.length;
  while (end > 0 && isSpace(text[end - 1] as string)) end--;
  return text.slice(0, end);
}

const ONE = new RegExp(`^[${SPACE}]$`);

export function isSpace(character: string): boolean {
  return ONE.test(character);
}
