/** Treatment of neutral steps in held-out data. */
import type { Step, StepLabel, StepRecord } from '../records/record.js';

export const HELD_OUT_NEUTRAL = ['as_trained', 'positive', 'negative', 'drop'] as const;
export type HeldOutNeutral = (typeof HELD_OUT_NEUTRAL)[number];

/** The labels of a held-out solution under the rule; `stepsOf` is called where it reads the steps. */
export function heldOutLabels(
  labels: readonly StepLabel[],
  rule: HeldOutNeutral,
  stepsOf: () => readonly Step[],
): readonly StepLabel[] {
  if (rule === 'as_trained') return labels;
  const steps = stepsOf();
  return labels.map((label, i) => counts(steps[i], label, rule));
}

/**
 * Whether a held-out solution with these labels under the rule is kept. Where neutral steps are left out, so are solutions
 * without another label: the same ones remain, whether or not training read neutral steps.
 */
export function isKept(labels: readonly StepLabel[], rule: HeldOutNeutral): boolean {
  return rule !== 'drop' || labels.some((label) => label !== null);
}

/** Records whose neutral steps count by the rule of held-out parts. */
export function heldOutRecords(records: readonly StepRecord[], rule: HeldOutNeutral): readonly StepRecord[] {
  if (rule === 'as_trained') return records;
  return records.flatMap((record) => {
    const { steps } = record;
    const own = steps.map(({ label }) => label);
    const labels = heldOutLabels(own, rule, () => steps);
    if (!isKept(labels, rule)) return [];
    return [{ ...record, steps: steps.map((step, i) => ({ ...step, label: labels[i] ?? null })) }];
  });
}

function counts(step: Step | undefined, label: StepLabel, rule: HeldOutNeutral): StepLabel {
  if (!step?.neutral || label === null || rule === 'as_trained') return label;
  return rule === 'drop' ? null : rule === 'positive' ? 1 : 0;
}
