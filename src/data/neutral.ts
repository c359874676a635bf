/** Treatment of neutral steps in held-out data. */
import type { Step, StepLabel, StepRecord } from '../records/record.js';

export const HELD_OUT_NEUTRAL = ['as_trained', 'positive', 'negative', 'drop'] as const;
export type HeldOutNeutral = (typeof HELD_OUT_NEUTRAL)[number];

/**
 * Held-out solutions with their labels under the rule. Where neutral steps are left out, so are solutions without another
 * label: the same ones remain, whether or not training read neutral steps.
 */
export function heldOutSolutions<T extends { readonly labels: readonly StepLabel[] }>(
  solutions: readonly T[],
  rule: HeldOutNeutral,
  recordOf: (solution: T) => Pick<StepRecord, 'steps'>,
): readonly T[] {
  if (rule === 'as_trained') return solutions;
  const counted = solutions.map((solution) => {
    const { steps } = recordOf(solution);
    return { ...solution, labels: solution.labels.map((label, i) => counts(steps[i], label, rule)) };
  });
  return rule === 'drop' ? counted.filter(({ labels }) => labels.some(isLabel)) : counted;
}

/** Records whose neutral steps count by the rule of held-out parts. */
export function heldOutRecords(records: readonly StepRecord[], rule: HeldOutNeutral): readonly StepRecord[] {
  if (rule === 'as_trained') return records;
  const solutions = records.map((record) => ({ record, labels: record.steps.map(({ label }) => label) }));
  return heldOutSolutions(solutions, rule, ({ record }) => record).map(({ record, labels }) => ({
    ...record,
    steps: record.steps.map((step, i) => ({ ...step, label: labels[i] ?? null })),
  }));
}

function counts(step: Step | undefined, label: StepLabel, rule: HeldOutNeutral): StepLabel {
  if (!step?.neutral || label === null || rule === 'as_trained') return label;
  return rule === 'drop' ? null : rule === 'positive' ? 1 : 0;
}

const isLabel = (label: StepLabel) => label !== null;
