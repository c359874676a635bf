/** Judges the steps of a solution one after the other, by exact arithmetic and a worked solution. */
import { extractAnswer, isMarked } from '../../answers/extract.js';
import { grade } from '../../answers/grade.js';
import { equationsIn, plainSigns } from './equations.js';
import { firstDifference, type ReferenceSolution } from './first-difference.js';

/**
 * Labels by step: 1 before the first wrong one, 0 for that one, null behind it. {@link firstDifference} finds the wrong
 * step; a step that announces another answer than the reference's is wrong too. A solution may be unfinished: a step
 * without a difference is right as far as it goes, and null where it computes and announces nothing.
 */
export function stepsByReference(
  reference: ReferenceSolution,
  steps: readonly string[],
): readonly (0 | 1 | null)[] {
  const { outcome, steps: compared } = firstDifference(reference, { steps });
  if (outcome === 1) return compared.map(({ label }) => label);
  const wrong = compared.findIndex(({ label }) => label === 0);
  const announced = steps.map(announces);
  const other = announced.findIndex(
    (answer, i) => answer && !grade(steps[i] as string, reference.answer).correct,
  );
  const first = [wrong, other].filter((at) => at >= 0).reduce((a, b) => Math.min(a, b), steps.length);
  return steps.map((step, i) => {
    if (i >= first) return i === first ? 0 : null;
    return announced[i] || equationsIn(plainSigns(step)).equations.length > 0 ? 1 : null;
  });
}

const announces = (step: string): boolean => isMarked(extractAnswer(step)?.method);
