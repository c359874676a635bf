import { formatLoadReport, formatTrainingDataSummary } from '../data/summary.js';
import type { RunData } from './method.js';

/** The counts of each part, then the rows read from and left out of each file. A resumed run has warned already. */
export function reportData(
  { summary, reports }: Pick<RunData, 'summary' | 'reports'>,
  { resumed }: { readonly resumed: boolean },
): void {
  const shown = resumed ? { ...summary, warnings: [] } : summary;
  for (const line of formatTrainingDataSummary(shown)) console.error(line);
  for (const line of reports.flatMap(formatLoadReport)) console.error(line);
}
