/** What a run says of its data before it trains. */
import type { LoadReport } from '../data/load.js';
import { formatLoadReport, formatTrainingDataSummary } from '../data/summary.js';
import type { VerdictData } from './verdict-data.js';

export function reportData({ summary, reports }: VerdictData): void {
  for (const line of formatTrainingDataSummary(summary)) console.error(line);
  reportFiles(reports);
}

/** What was read from each file, and what was left out of it. */
export function reportFiles(reports: readonly LoadReport[]): void {
  for (const line of reports.flatMap(formatLoadReport)) console.error(line);
}
