/** PRMBench (arXiv 2501.03124): the scores that its table has, from the metrics of its classes of errors. */
import type { GroupsMetrics } from './groups.js';
import type { VerdictMetrics } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';

/** The three subjects of PRMBench by the values of `classification`, spelled as there. */
const SUBJECTS = {
  simplicity: ['redundency', 'circular'],
  soundness: ['counterfactual', 'step_contradiction', 'domain_inconsistency', 'confidence'],
  sensitivity: ['missing_condition', 'deception', 'multi_solutions'],
} as const;

/** Right steps alone: there is no F1 of wrong ones. */
const WITHOUT_ERRORS = 'multi_solutions';

/**
 * PRM-Score is the mean of F1 of right and of wrong steps, which is macro F1: over all steps, and for each subject the mean of its
 * classes.
 *
 * @returns a line of a table; undefined of other data
 */
export function prmScoreLine(
  groups: GroupsMetrics | undefined,
  { f1_macro }: Pick<VerdictMetrics, 'f1_macro'>,
): string | undefined {
  if (!groups) return undefined;
  const means = Object.entries(SUBJECTS).flatMap(([subject, classes]) => {
    const scores = classes.flatMap((name): number[] => {
      const own = groups[name];
      if (!own) return [];
      return [name === WITHOUT_ERRORS ? own.f1_pos : own.f1_macro];
    });
    if (scores.length === 0) return [];
    const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
    return [
      `${subject} ${percent(mean)}${scores.length < classes.length ? ` (${scores.length} of ${classes.length} classes)` : ''}`,
    ];
  });
  return means.length === 0 ? undefined : `PRMBench PRM-Score: ${percent(f1_macro)}; ${means.join(', ')}`;
}
