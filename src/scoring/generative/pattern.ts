/** The verdicts in a text that a model wrote about a solution, by a pattern: plain text with placeholders, never a regular expression. */
export interface VerdictPattern {
  /** Text that begins the part on a step, with {step} for its number from 1. Absent: verdicts come in the order of the steps. */
  readonly step?: string | undefined;
  /** Text of a verdict, with {verdict} for one of the words. */
  readonly verdict: string;
  /** Words for right and for wrong. */
  readonly words: readonly [right: string, wrong: string];
}

/**
 * Verdicts by step, 1 for right; null where none can be read. With {step}, the last verdict of a step counts. Without, a text with more
 * verdicts than steps has none, since nothing says which belongs to which step. `\text{…}` around a word is ignored.
 */
export function readVerdicts(
  written: string,
  steps: number,
  { step, verdict, words }: VerdictPattern,
): (1 | 0 | null)[] {
  const text = written.replace(/\\text\{([^{}]*)\}/g, '$1');
  const found = verdictsIn(text, verdict, words);
  if (step === undefined)
    return Array.from({ length: steps }, (_, i) =>
      found.length > steps ? null : (found[i]?.verdict ?? null),
    );
  const heads = headsIn(text, step, steps);
  const own: (1 | 0 | null)[] = Array.from({ length: steps }, () => null);
  let next = 0;
  for (const { at, verdict: said } of found) {
    while (next < heads.length && (heads[next] as Head).at < at) next++;
    const head = heads[next - 1];
    if (head) own[head.step] = said;
  }
  return own;
}

interface Head {
  readonly at: number;
  /** From 0. */
  readonly step: number;
}

/** The begin of a line: white space and Markdown's marks of headings, lists and the like may stand before a part. */
const LINE_BEGINS = /(?:^|\n)[\s#>*_|`-]*$/;
/** Characters before a part in which its line is looked for. */
const BEFORE = 64;

/**
 * Beginnings of the parts on the steps, in order. Where each step that has one has one that begins a line, only those count: in
 * `Step 2: by Step 1: …` the part on step 2 goes on.
 */
function headsIn(text: string, pattern: string, steps: number): Head[] {
  const [before, after] = parted(pattern, '{step}');
  const all = placesOf(text, before).flatMap((at) => {
    const digits = /^\d{1,6}/.exec(text.slice(at + before.length, at + before.length + 6))?.[0];
    if (digits === undefined || !text.startsWith(after, at + before.length + digits.length)) return [];
    const step = Number(digits) - 1;
    return step >= 0 && step < steps ? [{ at, step }] : [];
  });
  const first = all.filter(({ at }) => LINE_BEGINS.test(text.slice(Math.max(0, at - BEFORE), at)));
  const begun = new Set(first.map(({ step }) => step));
  return all.every(({ step }) => begun.has(step)) ? first : all;
}

/** After `correct` the rest of `correctness`. */
const BEGINS_WITH_WORD = /^[\p{L}\p{M}\p{N}_]/u;

function verdictsIn(text: string, pattern: string, words: VerdictPattern['words']) {
  const [before, after] = parted(pattern, '{verdict}');
  return placesOf(text, before).flatMap((at) => {
    const start = at + before.length;
    const said = words.findIndex(
      (word) =>
        text.startsWith(`${word}${after}`, start) &&
        (after !== '' || !BEGINS_WITH_WORD.test(text.slice(start + word.length, start + word.length + 2))),
    );
    return said < 0 ? [] : [{ at, verdict: said === 0 ? (1 as const) : (0 as const) }];
  });
}

/** The text before and after a placeholder. */
function parted(pattern: string, placeholder: string): readonly [string, string] {
  const at = pattern.indexOf(placeholder);
  return [pattern.slice(0, at), pattern.slice(at + placeholder.length)];
}

function placesOf(text: string, part: string): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) places.push(at);
  return places;
}
