import { formatLoadReport, formatTrainingDataSummary } from '../../data/summary.js';
import { toLog, warn } from '../../terminal/log.js';
import type { RunData } from '../method.js';

/** The counts of each part, then the rows read from and left out of each file. A resumed run has warned already. */
export function reportData(
  { summary, reports }: Pick<RunData, 'summary' | 'reports'>,
  { resumed }: { readonly resumed: boolean },
): void {
  for (const line of formatTrainingDataSummary({ ...summary, warnings: [] })) toLog(line);
  if (!resumed) for (const warning of summary.warnings) warn(warning);
  for (const line of reports.flatMap(formatLoadReport)) toLog(line);
}

/** Consequences of held-out parts without a solution, and advice: a sentence for each. */
export const emptyParts = (solutions: { readonly validation: number; readonly test: number }): string[] => [
  ...(solutions.validation === 0
    ? [
        'the validation part is empty: nothing selects parameters, thresholds or weights, and every stage ends with its last ones; give ' +
          'more rows, name data.validation, or give it a larger share in data.split',
      ]
    : []),
  ...(solutions.test === 0
    ? [
        'the test part is empty, so that nothing is evaluated at the end: name data.test, or give it a larger share in data.split',
      ]
    : []),
];
