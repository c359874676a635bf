/** Forms of steps: a judge that learned from a few forms of lines cannot know others. */
import type { Step, StepRecord } from '../../records/record.js';

/** Steps of more forms than this are free text, in which no form is foreign. */
const MAX_FORMS = 24;

/** `Tom: 12 + 7 = 19` without its words and numbers: `w: # + # = #`. */
const formOf = (step: string): string =>
  step
    .trim()
    .replace(/\p{L}+(?:[ '-]\p{L}+)*/gu, 'w')
    .replace(/\d+/g, '#');

/** A step of each form, a right one where there is one, commonest forms first; undefined where the steps are free text. */
export function formsOf(records: Iterable<StepRecord>): string[] | undefined {
  const found = new Map<string, { step: Step; count: number }>();
  for (const { steps } of records)
    for (const step of steps) {
      const form = formOf(step.text);
      const known = found.get(form);
      if (known === undefined) found.set(form, { step, count: 1 });
      else {
        known.count++;
        if (known.step.label !== 1 && step.label === 1) known.step = step;
      }
      if (found.size > MAX_FORMS) return undefined;
    }
  return [...found.values()].sort((a, b) => b.count - a.count).map(({ step }) => step.text);
}

/** Steps with more words than this are free text. */
const MAX_WORDS = 150;

const wordsIn = (step: string): readonly string[] => step.match(/\p{L}+/gu) ?? [];

/** The words of the steps, in order of the alphabet; undefined where the steps are free text. */
export function wordsOf(records: Iterable<StepRecord>): string[] | undefined {
  const found = new Set<string>();
  for (const { steps } of records) {
    for (const { text } of steps) for (const word of wordsIn(text)) found.add(word);
    if (found.size > MAX_WORDS) return undefined;
  }
  return [...found].sort();
}

/** The words of each step that are none of `words`. */
export function foreignWords(steps: readonly string[], words: readonly string[]): string[][] {
  const known = new Set(words);
  return steps.map((step) => [...new Set(wordsIn(step))].filter((word) => !known.has(word)));
}

/** Max pairs of a card: problems with more are free text. */
const MAX_PAIRS = 4000;

/** Before the first and after the last word of a problem. */
const EDGE = '¶';

const piecesIn = (problem: string): readonly string[] => [
  EDGE,
  ...(problem.match(/\p{L}+|\d+|[^\s\p{L}\d]/gu) ?? []),
  EDGE,
];

/** Numbers of so many digits are one word. */
const wordOf = (piece: string): string => (/^\d/.test(piece) ? '#'.repeat(piece.length) : piece);

/**
 * The pairs of neighbouring words in the problems: of each word a text with it and then those that followed it, spaces between
 * them. Undefined where the problems are free text.
 */
export function pairsOf(records: Iterable<Pick<StepRecord, 'problem'>>): string[] | undefined {
  const found = new Map<string, Set<string>>();
  let count = 0;
  for (const { problem } of records) {
    const words = piecesIn(problem).map(wordOf);
    for (const [i, next] of words.slice(1).entries()) {
      const word = words[i] as string;
      const after = found.get(word) ?? new Set();
      if (after.has(next)) continue;
      found.set(word, after.add(next));
      if (++count > MAX_PAIRS) return undefined;
    }
  }
  return [...found].map(([word, after]) => [word, ...[...after].sort()].join(' ')).sort();
}

/** The words of a problem that no pair has or, where all are known, its neighbouring words that are no pair; empty where it is like the others. */
export interface ForeignPairs {
  readonly words: readonly string[];
  readonly neighbours: readonly string[];
}

/** @param pairs as {@link pairsOf} gives them */
export function foreignPairs(pairs: readonly string[]): (problem: string) => ForeignPairs {
  const known = new Map(
    pairs.map((text): [string, ReadonlySet<string>] => {
      const [word = '', ...after] = text.split(' ');
      return [word, new Set(after)];
    }),
  );
  return (problem) => {
    const pieces = piecesIn(problem);
    const words = pieces.filter((piece) => !known.has(wordOf(piece)));
    if (words.length > 0) return { words: [...new Set(words)], neighbours: [] };
    const neighbours = pieces.slice(1).flatMap((next, i) => {
      const piece = pieces[i] as string;
      const isKnown = known.get(wordOf(piece))?.has(wordOf(next));
      if (isKnown) return [];
      return piece === EDGE
        ? [`"${next}" at its start`]
        : [next === EDGE ? `"${piece}" at its end` : `"${piece} ${next}"`];
    });
    return { words, neighbours: [...new Set(neighbours)] };
  };
}

/** Places of the steps that are written like none of `forms`, from 0. */
export function foreignSteps(steps: readonly string[], forms: readonly string[]): number[] {
  const known = new Set(forms.map(formOf));
  return steps.flatMap((step, i) => (known.has(formOf(step)) ? [] : [i]));
}
