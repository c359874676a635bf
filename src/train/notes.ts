/** What a run says of its data before it trains. */
import { formatTrainingDataSummary } from '../data/summary.js';
import type { VerdictData } from './verdict-data.js';

export function reportData({ summary }: VerdictData): void {
  for (const line of formatTrainingDataSummary(summary)) console.error(line);
}
