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
 * verdicts than steps has none, since nothing says which belongs to which step, and other words in the place of a verdict are one that
 * cannot be read. `\text{…}` around a word is ignored, and capitals where the words differ without them.
 */
export function readVerdicts(
  written: string,
  steps: number,
  { step, verdict, words }: VerdictPattern,
): (1 | 0 | null)[] {
  const text = written.replace(/\\text\{([^{}]*)\}/g, '$1');
  const all = verdictsIn(text, verdict, words);
  if (step === undefined)
    return Array.from({ length: steps }, (_, i) => (all.length > steps ? null : (all[i]?.verdict ?? null)));
  const found = all.filter(({ verdict: said }) => said !== null);
  const heads = headsIn(text, step);
  const own: (1 | 0 | null)[] = Array.from({ length: steps }, () => null);
  let next = 0;
  for (const { at, verdict: said } of found) {
    while (next < heads.length && (heads[next] as Head).at < at) next++;
    const head = heads[next - 1];
    if (head && head.step < steps) own[head.step] = said;
  }
  return own;
}

interface Head {
  readonly at: number;
  /** From 0; a part on a step that is not there has one too. */
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
function headsIn(text: string, pattern: string): Head[] {
  const [before, after] = parted(pattern, '{step}');
  const all = placesOf(text, before).flatMap((at) => {
    const digits = /^\d{1,6}/.exec(text.slice(at + before.length, at + before.length + 6))?.[0];
    if (digits === undefined || !text.startsWith(after, at + before.length + digits.length)) return [];
    const step = Number(digits) - 1;
    return step >= 0 ? [{ at, step }] : [];
  });
  const first = all.filter(({ at }) => LINE_BEGINS.test(text.slice(Math.max(0, at - BEFORE), at)));
  const begun = new Set(first.map(({ step }) => step));
  return all.every(({ step }) => begun.has(step)) ? first : all;
}

/** After `correct` the rest of `correctness`. */
const BEGINS_WITH_WORD = /^[\p{L}\p{M}\p{N}_]/u;

/** Words that may stand in the place of a verdict; numbers and formulas stand in boxes for themselves. */
const WORDS = /^\s*\p{L}[\p{L}' -]{2,40}$/u;

function verdictsIn(text: string, pattern: string, words: VerdictPattern['words']) {
  const [before, after] = parted(pattern, '{verdict}');
  const [right, wrong] = words.map((word) => word.toLowerCase());
  const read = (part: string) => (right === wrong ? part : part.toLowerCase());
  return placesOf(text, before).flatMap((at): { at: number; verdict: 1 | 0 | null }[] => {
    const start = at + before.length;
    const said = words.findIndex((word) => {
      const end = start + word.length;
      return (
        read(text.slice(start, end)) === read(word) &&
        text.startsWith(after, end) &&
        (after !== '' || !BEGINS_WITH_WORD.test(text.slice(end, end + 2)))
      );
    });
    if (said >= 0) return [{ at, verdict: said === 0 ? 1 : 0 }];
    const end = after === '' ? -1 : text.indexOf(after, start);
    return end >= 0 && end - start <= 42 && WORDS.test(text.slice(start, end)) ? [{ at, verdict: null }] : [];
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
