/** How steps are written: what a judge that learned from a few forms of lines cannot know of others. */
import type { Step, StepRecord } from '../records/record.js';

/** Steps of more forms than this are free text, of which no form is foreign. */
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

/** Places of the steps that are written like none of `forms`, from 0. */
export function foreignSteps(steps: readonly string[], forms: readonly string[]): number[] {
  const known = new Set(forms.map(formOf));
  return steps.flatMap((step, i) => (known.has(formOf(step)) ? [] : [i]));
}
