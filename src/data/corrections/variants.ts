/** The controls of the method: each changes one thing about a sample with a correction. */
import type { Step, StepRecord } from '../../records/record.js';

export const VARIANTS = ['step', 'clean', 'oversample', 'no_reflection', 'sham', 'low_diversity'] as const;

/**
 * - `step`: the sample as it is
 * - `clean`: nothing; the solutions without corrections are trained on alone (`isTrained`)
 * - `oversample`: the right solution in it, once more for each sample: the same problems and positions, nothing of corrections
 * - `no_reflection`: the improvement follows the wrong step at once
 * - `sham`: the wrong step is the right one, which is reflected upon and written again: form without content
 * - `low_diversity`: of all samples at one step of one solution, which follow one another, the wrong step and reflection of the first
 */
export type CorrectionVariant = (typeof VARIANTS)[number];

type Solution = Pick<StepRecord, 'problem' | 'steps'>;

/** A function that changes each record, in order. A record without a wrong step stays as it is. */
export function correctionVariant(variant: CorrectionVariant): <R extends Solution>(record: R) => R {
  if (variant === 'low_diversity') return lowDiversity();
  const change = CHANGES[variant];
  return (record) => (hasCorrection(record) ? { ...record, steps: change(record.steps) } : record);
}

/** Whether a variant trains on the record at all. */
export function isTrained(variant: CorrectionVariant, record: Solution): boolean {
  return variant !== 'clean' || !hasCorrection(record);
}

/** Whether the record contains a wrong step with a correction. */
export function hasCorrection({ steps }: Pick<StepRecord, 'steps'>): boolean {
  return steps.some(({ kind }) => kind === 'wrong');
}

const CHANGES: Readonly<
  Record<Exclude<CorrectionVariant, 'low_diversity'>, (steps: readonly Step[]) => readonly Step[]>
> = {
  step: (steps) => steps,
  clean: (steps) => steps,
  oversample: (steps) =>
    steps.flatMap((step): Step[] => {
      if (step.kind === 'wrong' || step.kind === 'reflection') return [];
      return [step.kind === 'improvement' ? { ...step, kind: 'normal' } : step];
    }),
  no_reflection: (steps) => steps.filter(({ kind }) => kind !== 'reflection'),
  sham: (steps) =>
    steps.map((step, i): Step => {
      if (step.kind !== 'wrong') return step;
      const right = steps.slice(i).find(({ kind }) => kind === 'improvement');
      return right ? { ...right, kind: 'normal' } : step;
    }),
};

function lowDiversity() {
  let place: string | undefined;
  let first: readonly Step[] = [];
  return <R extends Solution>(record: R): R => {
    const at = record.steps.findIndex(({ kind }) => kind === 'wrong');
    if (at < 0) return record;
    const own = record.steps.slice(at).filter(({ kind }) => kind === 'wrong' || kind === 'reflection');
    const before = record.steps.slice(0, at).map(({ text }) => text);
    const here = JSON.stringify([record.problem, ...before]);
    if (here !== place) [place, first] = [here, own];
    if (first.length !== own.length) return record;
    const replaced = new Map(own.map((step, i) => [step, first[i] as Step]));
    return { ...record, steps: record.steps.map((step) => replaced.get(step) ?? step) };
  };
}
