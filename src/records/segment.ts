/** Steps of long chains of thought, by a rule with a version: the same text has the same steps wherever it is read. */
import { mathematics } from './mathematics.js';
import { stepPieces, stepsOf } from './steps.js';

/** Rules by name and version. A rule never changes; a better one has another number. */
export const SEGMENTATIONS = ['thoughts/1'] as const;
export type Segmentation = (typeof SEGMENTATIONS)[number];

export interface SegmentedStep {
  /** `source.slice(start, end)`. */
  readonly text: string;
  /** UTF-16 code units of the source; without the white space around. */
  readonly start: number;
  readonly end: number;
  /** Whether it stands in the chain of thought, or in the answer after it. */
  readonly part: 'thought' | 'answer';
}

/**
 * The steps of a text with a chain of thought, `<think>…</think>` and the answer after it. The tags are in no step; where the opening one
 * is missing, as in samples after a template that ends with it, the thought begins with the text, and where the closing one is, it ends
 * with it. A text without either is an answer.
 *
 * `thoughts/1`: a step is a paragraph, that is, text between blank lines that are in no formula and no fenced code. A paragraph that is
 * one formula or one block of code, or begins with a small letter or a closing sign, goes on with the one before it, as does one after
 * a paragraph that ends with a colon or a comma.
 */
export function segmentSteps(text: string, rule: Segmentation = 'thoughts/1'): SegmentedStep[] {
  if (!SEGMENTATIONS.includes(rule))
    throw new RangeError(`segmentSteps: expected a rule of ${SEGMENTATIONS.join(', ')}, found ${rule}`);
  return partsOf(text).flatMap(({ part, start, end }) =>
    joinedParagraphs(text, start, end).map((span) => ({
      text: text.slice(span.start, span.end),
      ...span,
      part,
    })),
  );
}

/** The texts of the steps of a solution by a rule, of which blank ones are none; without a rule its paragraphs, or its lines. */
export const stepsBy = (text: string, rule: Segmentation | undefined): string[] =>
  rule === undefined ? stepsOf(text) : segmentSteps(text, rule).map((step) => step.text);

/**
 * The pieces of a text that are its steps by a rule, with what stands between them: joined by line breaks they are the text again,
 * without white space at its end, but for a step that begins on the line on which the one before it ends. They are as many as the
 * steps of {@link stepsBy}.
 */
export function piecesBy(text: string, rule: Segmentation | undefined): string[] {
  if (rule === undefined) return stepPieces(text);
  const whole = text.trimEnd();
  const steps = segmentSteps(whole, rule);
  let from = 0;
  return steps.map((step, i) => {
    const next = steps[i + 1];
    const begin = from;
    if (!next) return whole.slice(begin);
    const end = Math.max(step.end, whole.lastIndexOf('\n', next.start - 1));
    from = whole[end] === '\n' ? end + 1 : end;
    return whole.slice(begin, end);
  });
}

interface Place {
  readonly start: number;
  readonly end: number;
}

const OPEN = '<think>';
const CLOSE = '</think>';

function partsOf(text: string): (Place & Pick<SegmentedStep, 'part'>)[] {
  const opened = text.indexOf(OPEN);
  const close = text.indexOf(CLOSE);
  if (opened < 0 && close < 0) return [{ part: 'answer', start: 0, end: text.length }];
  const isBefore = opened >= 0 && (close < 0 || opened < close);
  const start = isBefore ? opened + OPEN.length : 0;
  const thought = { part: 'thought', start, end: close < 0 ? text.length : close } as const;
  const before = isBefore ? [{ part: 'answer', start: 0, end: opened } as const] : [];
  const after = close < 0 ? [] : [{ part: 'answer', start: close + CLOSE.length, end: text.length } as const];
  return [...before, thought, ...after];
}

const FENCE = /^[^\S\n]*```/;
const GOES_ON = /^[\p{Ll})\]}.,;:]/u;
const IS_OPEN = /[:,]$/;

function joinedParagraphs(source: string, from: number, to: number): Place[] {
  const text = source.slice(from, to);
  const formulas = mathematics(text);
  const found: Place[] = [];
  let wasOpen = false;
  for (const { start, end } of paragraphs(text, formulas)) {
    const own = text.slice(start, end);
    const isBlock = FENCE.test(own) || formulas.some(([first, last]) => first === start && last === end);
    const before = found.at(-1);
    if (before && (wasOpen || isBlock || GOES_ON.test(own)))
      found[found.length - 1] = { start: before.start, end: from + end };
    else found.push({ start: from + start, end: from + end });
    wasOpen = IS_OPEN.test(own);
  }
  return found;
}

/** Places of the paragraphs, without white space around them. */
function paragraphs(text: string, formulas: readonly (readonly [number, number])[]): Place[] {
  const blocks = [...formulas, ...fencedCode(text)].sort(([a], [b]) => a - b);
  const found: Place[] = [];
  let start = 0;
  let next = 0;
  const add = (end: number) => {
    const own = text.slice(start, end);
    const first = start + (own.length - own.trimStart().length);
    if (own.trim() !== '') found.push({ start: first, end: first + own.trim().length });
  };
  for (const { index, 0: gap } of text.matchAll(/\n[^\S\n]*(?:\n[^\S\n]*)+/g)) {
    while (next < blocks.length && (blocks[next] as readonly [number, number])[1] <= index) next++;
    const block = blocks[next];
    if (block && block[0] <= index) continue;
    add(index);
    start = index + gap.length;
  }
  add(text.length);
  return found;
}

/** Places of code between lines that begin with three backticks; one that nothing closes is none. */
function fencedCode(text: string): (readonly [number, number])[] {
  const found: (readonly [number, number])[] = [];
  let start: number | undefined;
  for (const { index, 0: line } of text.matchAll(/^[^\S\n]*```[^\n]*$/gm)) {
    if (start === undefined) start = index;
    else {
      found.push([start, index + line.length]);
      start = undefined;
    }
  }
  return found;
}
