// `steptrain data stats`: statistics of the training and evaluation data of a recipe.
import { formatLoadReport, formatTrainingDataSummary } from '../data/summary.js';
import { methodOf, type RunConfig } from '../methods/table.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import type { RunData } from '../train/method.js';

export type DataStats = Pick<RunData, 'summary' | 'reports'>;

/** Reads all the data that `config` names and counts it. */
export async function dataStats(config: RunConfig): Promise<DataStats> {
  const method = await methodOf(config).load();
  const never = new AbortController().signal;
  const data = await method.data(config, await configuredTokenizer(config.model), never);
  if (data === undefined) throw new Error('stopped without a signal');
  data.close();
  return data;
}

export function formatDataStats({ summary, reports }: DataStats): string {
  return [
    ...formatTrainingDataSummary(summary),
    ...reports.flatMap((report) => ['', ...formatLoadReport(report)]),
  ].join('\n');
}
