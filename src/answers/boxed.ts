// The last `\boxed{…}` of a text, joined with the boxes right before it if they form one answer.

interface Box {
  readonly start: number;
  readonly end: number;
  /** Begin and end of its content. */
  readonly content: readonly [number, number];
}

/** The place of an answer in a text, and its content. */
export interface Found {
  readonly at: number;
  readonly text: string;
}

const BOX = /\\f?box(?:ed)?(?![a-zA-Z])\s?/g;
/** Text allowed between two boxes of one answer: signs, spacing, a name with its equals sign, one noun, and. */
const GLUE =
  /^(?:[\s$,;+]|\\$|\\[()[\],;:! ]|\\q?quad|\\text(?:bf)?\{?|\}|and\b|or\b|[A-Za-z]+_?\{?\d?\}?\s?=|[a-z]+\b(?=\s+(?:and|or)\b))*$/;
const MAX_GLUE = 60;
const MAX_BOXES = 32;

/** The content of the last balanced box. Contents of boxes with at most one `and` between them are joined by commas. */
export function lastBoxed(text: string): Found | undefined {
  const boxes = balancedBoxes(text);
  const last = boxes.at(-1);
  if (last === undefined) return undefined;
  const contents = [contentOf(text, last)];
  let first = last;
  let join = ', ';
  for (const box of boxes.slice(-MAX_BOXES, -1).reverse()) {
    const between = text.slice(box.end, first.start);
    if (between.length > MAX_GLUE || between.includes('\n\n') || !GLUE.test(between)) break;
    if (/\bor\b/.test(between)) join = ' or ';
    contents.unshift(contentOf(text, box));
    first = box;
  }
  const distinct = [...new Set(contents)];
  // The base of digits may stand behind the box.
  const base =
    distinct.length === 1 ? (/^_(?:\d|\{\d+\})/.exec(text.slice(last.end, last.end + 8))?.[0] ?? '') : '';
  return { at: first.start, text: distinct.join(join) + base };
}

/** The content without boxes inside it. */
function contentOf(text: string, { content: [from, to] }: Box): string {
  const content = text.slice(from, to).replace(/\\f?box(?:ed)?(?![a-zA-Z])/g, ' ');
  return content.trim().replace(/^\{([^{}]*)\}$/, '$1');
}

/** Boxes with matching braces, in order; nested ones give only the outermost. One pass over the text. */
function balancedBoxes(text: string): Box[] {
  const opening = new Map<number, number>();
  const boxes: Box[] = [];
  for (const match of text.matchAll(BOX)) {
    const end = match.index + match[0].length;
    if (text[end] === '{') opening.set(end, match.index);
    // `\boxed 5` has no braces.
    const bare = match[0].endsWith(' ') ? /^[^\s\\{}$.]+/.exec(text.slice(end, end + 40))?.[0] : undefined;
    if (bare !== undefined)
      boxes.push({ start: match.index, end: end + bare.length, content: [end, end + bare.length] });
  }
  const [first] = opening.keys();
  const open: number[] = [];
  for (let at = first ?? text.length; at < text.length; at++) {
    const character = text[at];
    if (character === '\\') at++;
    else if (character === '{') open.push(at);
    else if (character === '}') {
      const from = open.pop();
      const start = from === undefined ? undefined : opening.get(from);
      if (from === undefined || start === undefined) continue;
      while (boxes.length > 0 && boxes.at(-1)!.start > start && boxes.at(-1)!.end <= at) boxes.pop();
      boxes.push({ start, end: at + 1, content: [from + 1, at] });
    }
  }
  return boxes.sort((a, b) => a.start - b.start);
}
