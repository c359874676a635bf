// Python's ways to split texts.
import { isSpace, SPACE, withoutLeft, withoutRight } from './white-space.js';

/** `text.split(separator, most)`; without a separator at white space. */
export function splitLeft(text: string, separator: string | undefined, most: number): string[] {
  if (separator !== undefined) {
    const parts = text.split(separator);
    if (most < 0 || parts.length <= most + 1) return parts;
    return [...parts.slice(0, most), parts.slice(most).join(separator)];
  }
  if (most < 0) return text.split(new RegExp(`[${SPACE}]+`)).filter((word) => word !== '');
  const words: string[] = [];
  let rest = withoutLeft(text);
  while (rest !== '' && words.length < most) {
    let end = 0;
    while (end < rest.length && !isSpace(rest[end] as string)) end++;
    words.push(rest.slice(0, end));
    rest = withoutLeft(rest.slice(end));
  }
  return rest === '' ? words : [...words, rest];
}

/** `text.rsplit(separator, most)`. */
export function splitRight(text: string, separator: string | undefined, most: number): string[] {
  if (most < 0) return splitLeft(text, separator, most);
  if (separator !== undefined) {
    // Splitting from the right matters where separators overlap.
    const parts: string[] = [];
    let end = text.length;
    while (parts.length < most) {
      const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
      if (at < 0) break;
      parts.unshift(text.slice(at + separator.length, end));
      end = at;
    }
    return [text.slice(0, end), ...parts];
  }
  const words: string[] = [];
  let rest = withoutRight(text);
  while (rest !== '' && words.length < most) {
    let from = rest.length;
    while (from > 0 && !isSpace(rest[from - 1] as string)) from--;
    words.unshift(rest.slice(from));
    rest = withoutRight(rest.slice(0, from));
  }
  return rest === '' ? words : [rest, ...words];
}

/** `text.splitlines(keeps)`. */
export function lines(text: string, keeps = false): string[] {
  const found: string[] = [];
  let from = 0;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: Python breaks lines at them
  for (const { 0: end, index } of text.matchAll(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g)) {
    found.push(text.slice(from, keeps ? index + end.length : index));
    from = index + end.length;
  }
  return from < text.length ? [...found, text.slice(from)] : found;
}
