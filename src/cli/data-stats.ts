// `steptrain data stats`: what a recipe would train and be judged on, counted before any of it runs.
import type { RunConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import { problemKey } from '../data/overlap.js';
import {
  formatLoadReport,
  formatTrainingDataSummary,
  type SummarizedSolution,
  summarizeTrainingData,
  type TrainingDataSummary,
} from '../data/summary.js';
import type { StepRecord } from '../records/record.js';
import { configuredRecords } from '../run/parts.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { verdictData } from '../train/verdict-data.js';

export interface DataStats {
  readonly summary: TrainingDataSummary;
  readonly reports: readonly LoadReport[];
}

/** Reads all the data that `config` names and counts it; where verdicts are learned, tokens too. */
export async function dataStats(config: RunConfig): Promise<DataStats> {
  if (config.method === 'pretrain') {
    const { parts, reports } = await configuredRecords(config.data);
    const [train, validation, test] = [parts.train, parts.validation, parts.test].map((part) =>
      part.map(counted),
    );
    return {
      summary: summarizeTrainingData({ train: train!, validation: validation!, test: test! }),
      reports,
    };
  }
  const never = new AbortController().signal;
  const data = await verdictData(config, await configuredTokenizer(config.model), never);
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

function counted({ problem, steps, context_steps }: StepRecord): SummarizedSolution {
  const labels = steps.map(({ label }) => label);
  return { key: problemKey(problem), labels, context_steps, text: () => problem };
}
