// `steptrain data stats`: statistics of the training and evaluation data of a recipe.
import { type UnseenSteps, unseenSteps } from '../../data/problems/unseen.js';
import { formatLoadReport, formatTrainingDataSummary } from '../../data/summary.js';
import { percent } from '../../eval/statistics/percent.js';
import { methodOf, type RunConfig } from '../../methods/table.js';
import { dividedRecords } from '../../run/parts.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import type { RunData } from '../../train/method.js';

export interface DataStats extends Pick<RunData, 'summary' | 'reports'> {
  /** Steps of held-out parts of generated word problems, and the number of their facts that training lacks. */
  readonly unseen?: Readonly<Record<'validation' | 'test', UnseenSteps>>;
}

/** Reads all the data that `config` names and counts it. */
export async function dataStats(config: RunConfig): Promise<DataStats> {
  const method = await methodOf(config).load();
  const never = new AbortController().signal;
  const data = await method.data(config, await configuredTokenizer(config.model), never);
  if (data === undefined) throw new Error('stopped without a signal');
  data.close();
  const { summary, reports } = data;
  if (config.data.source !== 'word_problems') return { summary, reports };
  return { summary, reports, unseen: await unseenSteps(dividedRecords(config.data)) };
}

export function formatDataStats({ summary, reports, unseen }: DataStats): string {
  return [
    ...formatTrainingDataSummary(summary),
    ...Object.entries(unseen ?? {}).map(unseenLine),
    ...reports.flatMap((report) => ['', ...formatLoadReport(report)]),
  ].join('\n');
}

function unseenLine([part, { steps, unseen }]: [string, UnseenSteps]): string {
  return `${part} steps whose computation is in no training step: ${unseen} of ${steps} (${percent(steps === 0 ? 0 : unseen / steps)} %)`;
}
