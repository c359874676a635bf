import { formatLoadReport, formatTrainingDataSummary } from '../data/summary.js';
import type { RunData } from './method.js';

/** The counts of each part, then the rows read from and left out of each file. */
export function reportData({ summary, reports }: Pick<RunData, 'summary' | 'reports'>): void {
  for (const line of formatTrainingDataSummary(summary)) console.error(line);
  for (const line of reports.flatMap(formatLoadReport)) console.error(line);
}
