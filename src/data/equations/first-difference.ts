/**
 * Finds the first wrong line of a solution by exact arithmetic: its equation does not hold, or its value is not one of
 * the reference solution. No model is asked.
 */
import { grade } from '../../answers/grade.js';
import { equals, type Rational } from '../../answers/rational.js';
import type { Step, StepRecord } from '../../records/record.js';
import type { Problem } from '../benchmarks/problem.js';
import { equationsIn, plainSigns } from './equations.js';
import { numbersIn } from './expression.js';

/** A problem with a worked solution, such as GSM8K's. */
export type ReferenceSolution = Required<Pick<Problem, 'problem' | 'solution' | 'answer'>>;

export interface ComparedSolution {
  readonly steps: readonly string[];
  /** Whether it was cut off: its last line states no answer. */
  readonly cutOff?: boolean;
}

/** Why a line counts as wrong. */
export type Difference = 'arithmetic' | 'value';

/**
 * A solution as a record: lines before the first difference are right, the line with it is wrong and has the reason
 * (`error`), and later lines have no label.
 * - `arithmetic`: an equation of the line does not hold
 * - `value`: the final answer is wrong, and the line has the first result that neither the reference nor the problem
 *   has
 *
 * In a solution with the right answer only equations that do not hold count, since it may take another way than the
 * reference. A solution with a wrong answer and no difference has no labels, since the place of its error is unknown.
 */
export function firstDifference(
  reference: ReferenceSolution,
  { steps, cutOff = false }: ComparedSolution,
): StepRecord {
  const outcome = cutOff ? undefined : isRight(reference, steps) ? 1 : 0;
  const known = [reference.solution, reference.problem, reference.answer]
    .flatMap((text) => numbersIn(text))
    .map(({ value }) => value);
  const lines = steps.map((step) => equationsIn(plainSigns(step)));
  const place = lines.findIndex((line) => differenceOf(line.equations, outcome === 1 ? undefined : known));
  const found = place < 0 ? undefined : differenceOf(lines[place]?.equations ?? [], known);
  const isOpen = !found && outcome !== 1;
  return {
    problem: reference.problem,
    gold_answer: reference.answer,
    steps: lines.map(({ text: plain }, i): Step => {
      // Notes for calculators are left out; nothing else is rewritten.
      const text = steps[i]?.includes('<<') ? plain : (steps[i] as string);
      if (i === place && found) return { text, label: 0, error: found, kind: 'normal' };
      return { text, label: isOpen || (found && i > place) ? null : 1, kind: 'normal' };
    }),
    ...(outcome === undefined ? {} : { outcome }),
  };
}

function differenceOf(
  equations: ReturnType<typeof equationsIn>['equations'],
  known: readonly Rational[] | undefined,
): Difference | undefined {
  for (const { holds, result, value } of equations) {
    if (!holds) return 'arithmetic';
    if (known && ![result.value, value].some((own) => known.some((each) => equals(each, own))))
      return 'value';
  }
  return undefined;
}

function isRight({ answer }: ReferenceSolution, steps: readonly string[]): boolean {
  return grade(steps.join('\n').replace(/<<[^<>]*>>/g, ''), answer).correct;
}
