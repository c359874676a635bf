/** Forms of steps: a judge that learned from a few forms of lines cannot know others. */
import type { Step, StepRecord } from '../../records/record.js';

/** Steps of more forms than this are free text, in which no form is foreign. */
const MOST_FORMS = 24;

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
      if (found.size > MOST_FORMS) return undefined;
    }
  return [...found.values()].sort((a, b) => b.count - a.count).map(({ step }) => step.text);
}

/** Steps with more words than this are free text. */
const MOST_WORDS = 150;

const wordsIn = (step: string): readonly string[] => step.match(/\p{L}+/gu) ?? [];

/** The words of the steps, in order of the alphabet; undefined where the steps are free text. */
export function wordsOf(records: Iterable<StepRecord>): string[] | undefined {
  const found = new Set<string>();
  for (const { steps } of records) {
    for (const { text } of steps) for (const word of wordsIn(text)) found.add(word);
    if (found.size > MOST_WORDS) return undefined;
  }
  return [...found].sort();
}

/** The words of each step that are none of `words`. */
export function foreignWords(steps: readonly string[], words: readonly string[]): string[][] {
  const known = new Set(words);
  return steps.map((step) => [...new Set(wordsIn(step))].filter((word) => !known.has(word)));
}

/** Places of the steps that are written like none of `forms`, from 0. */
export function foreignSteps(steps: readonly string[], forms: readonly string[]): number[] {
  const known = new Set(forms.map(formOf));
  return steps.flatMap((step, i) => (known.has(formOf(step)) ? [] : [i]));
}
