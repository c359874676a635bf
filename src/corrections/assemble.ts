/** Samples as records. */
import type { Step, StepRecord } from '../records/record.js';
import type { SourceSolution } from './solution.js';
import type { Correction } from './teacher.js';

export const SHAPES = ['step', 'instance', 'post_hoc'] as const;
export type SampleShape = (typeof SHAPES)[number];

/** A wrong step with its correction. */
export interface CorrectedStep {
  /** Index of the right step in whose place it stands. */
  readonly at: number;
  readonly wrong: string;
  readonly correction: Correction;
  /** The model's continuations after it, none of which reached the right answer. */
  readonly continued: readonly string[];
}

const right = (text: string): Step => ({ text, label: 1, kind: 'normal' });
const wrong = (text: string): Step => ({ text, label: 0, kind: 'wrong' });
const reflection = (text: string): Step => ({ text, label: null, kind: 'reflection' });
const improvement = (text: string): Step => ({ text, label: 1, kind: 'improvement' });

export function cleanRecord(solution: SourceSolution): StepRecord {
  return recordOf(solution, solution.steps.map(right));
}

/**
 * The sample of one wrong step.
 * - `step`: beginning, wrong step, reflection, improvement, the rest of the right solution
 * - `instance`: the whole wrong solution, the reflection, the whole right solution
 * - `post_hoc`: the problem is followed by the whole wrong solution, and answered by the right one
 */
export function sampleRecord(
  solution: SourceSolution,
  { at, wrong: step, correction, continued }: CorrectedStep,
  { shape, repeat }: { readonly shape: SampleShape; readonly repeat: boolean },
): StepRecord {
  const { steps } = solution;
  const before = steps.slice(0, at);
  const mistaken = [...before, step, ...continued];
  switch (shape) {
    case 'step':
      return recordOf(solution, [
        ...before.map(right),
        wrong(step),
        reflection(correction.reflection),
        improvement(correction.improvement),
        ...(repeat ? [right(steps[at] as string)] : []),
        ...steps.slice(at + 1).map(right),
      ]);
    case 'instance':
      return recordOf(solution, [
        ...mistaken.map(wrong),
        reflection(correction.reflection),
        improvement(steps[0] as string),
        ...steps.slice(1).map(right),
      ]);
    case 'post_hoc':
      return recordOf({ ...solution, problem: secondPass(solution.problem, mistaken) }, steps.map(right));
  }
}

/** The problem of a second pass, which reads a solution and writes it anew. */
export function secondPass(problem: string, solution: readonly string[]): string {
  return `${problem}\n\n${solution.join('\n')}\n\nWrite the solution again without its errors.`;
}

function recordOf({ problem, answer, steps, record }: SourceSolution, own: readonly Step[]): StepRecord {
  return {
    problem,
    gold_solution: steps.join('\n'),
    gold_answer: answer,
    steps: own,
    outcome: 1,
    ...(record.provenance ? { provenance: record.provenance } : {}),
  };
}
