// The start and end of TeX mathematics in a text.

/** A place in a text, its end not included. */
export type Span = readonly [start: number, end: number];

const SIGN = /\\(begin|end)\s?\{([^{}\n]{1,40})\}|\\[\s\S]|\$\$|[${}]|\n[^\S\n]*\n/g;
const CLOSES: Readonly<Record<string, string>> = { '\\)': '\\(', '\\]': '\\[', '}': '{' };

interface Scan {
  readonly found: readonly Span[];
  /** Positions of unclosed signs, by sign. */
  readonly open: ReadonlyMap<string, readonly number[]>;
}

/**
 * The places of mathematics: between `$`, `$$`, `\[ \]`, `\( \)`, `\begin{…} \end{…}` and braces, in order and joined where they
 * touch. A sign that nothing closes opens nothing, and a dollar sign before a price is none. One pass.
 */
export function mathematics(text: string): Span[] {
  return joined([...scan(text).found]);
}

/** Whether a formula begins in a text and does not end in it. A dollar sign before a digit may be a price, and begins none. */
export function endsInMathematics(text: string): boolean {
  return [...scan(text).open].some(([sign, places]) =>
    sign === '$' ? places.some((at) => !/[\s\d]/.test(text[at + 1] ?? ' ')) : places.length > 0,
  );
}

function scan(text: string): Scan {
  const open = new Map<string, number[]>();
  const found: Span[] = [];
  const opens = (name: string, at: number) => {
    const places = open.get(name);
    if (places) places.push(at);
    else open.set(name, [at]);
  };
  const closes = (name: string, end: number) => {
    const start = open.get(name)?.pop();
    if (start !== undefined) found.push([start, end]);
  };
  const dollar = (sign: string, at: number) => {
    const start = open.get(sign)?.pop();
    const end = at + sign.length;
    if (start !== undefined && isFormula(text.slice(start + sign.length, at), text[end]))
      found.push([start, end]);
    else opens(sign, at);
  };
  for (const match of text.matchAll(SIGN)) {
    const [sign, word, environment] = match;
    const end = match.index + sign.length;
    if (sign.startsWith('\n')) {
      // No formula within a line of text goes on in the next paragraph.
      open.delete('$');
    } else if (sign === '$$' && open.get('$')?.length) {
      // Within a formula of one sign, two are its end and the beginning of the next.
      dollar('$', match.index);
      dollar('$', match.index + 1);
    } else if (sign.startsWith('$')) dollar(sign, match.index);
    else if (word === 'begin') opens(`\\begin ${environment}`, match.index);
    else if (word === 'end') closes(`\\begin ${environment}`, end);
    else if (sign === '\\[' || sign === '\\(' || sign === '{') opens(sign, match.index);
    else if (CLOSES[sign] !== undefined) closes(CLOSES[sign], end);
  }
  return { found, open };
}

/** Whether the text between two dollar signs is mathematics, and not the words between two prices. */
function isFormula(content: string, next: string | undefined): boolean {
  if (!content.includes('\n')) return true;
  if (/\d/.test(next ?? '')) return false;
  const plain = content.replace(/\\(?:text\w*|mbox|mathrm)\s?\{[^{}]*\}|\\[a-zA-Z]+(?:\{[a-z]*\*?\})?/g, ' ');
  return (plain.match(/(?<!\p{L})\p{Ll}{3,}(?!\p{L})/gu) ?? []).length < 2;
}

function joined(spans: Span[]): Span[] {
  const kept: [number, number][] = [];
  for (const [start, end] of spans.sort((a, b) => a[0] - b[0])) {
    const last = kept.at(-1);
    if (last === undefined || start > last[1]) kept.push([start, end]);
    else last[1] = Math.max(last[1], end);
  }
  return kept;
}

/** The pieces between separators outside mathematics. */
export function splitOutside(text: string, separator: RegExp | string): string[] {
  const sought =
    typeof separator === 'string'
      ? new RegExp(separator.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'), 'g')
      : separator;
  const spans = mathematics(text);
  const pieces: string[] = [];
  let from = 0;
  let span = 0;
  for (const { 0: sign, index } of text.matchAll(sought)) {
    while (span < spans.length && spans[span]![1] <= index) span++;
    if (span < spans.length && spans[span]![0] < index) continue;
    pieces.push(text.slice(from, index));
    from = index + sign.length;
  }
  return [...pieces, text.slice(from)];
}
