import { formatLoadReport, formatTrainingDataSummary } from '../data/summary.js';
import type { RunData } from './method.js';

/** The counts of each part, then what was read from each file and what was left out of it. */
export function reportData({ summary, reports }: Pick<RunData, 'summary' | 'reports'>): void {
  for (const line of formatTrainingDataSummary(summary)) console.error(line);
  for (const line of reports.flatMap(formatLoadReport)) console.error(line);
}
