// eval.json of a run that learns to solve problems, and its table.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../files/json-file.js';
import { plural } from '../../native/shown.js';
import { formatTable } from '../../terminal/table.js';
import { readAs } from '../read-as.js';
import { percent } from '../statistics/percent.js';
import { type CorrectionReport, formatCorrectionReport } from './corrections.js';
import type { MetricValue } from './metrics.js';
import { metricValue } from './report-file.js';
import { metricTitle } from './solving-report.js';

/** Metrics by name, of all problems (`all`) and of each group, such as a level. */
export type SolvedGroups = Readonly<Record<string, Readonly<Record<string, MetricValue>>>>;

/** Held-out problems solved before and after training, or after each round. Shares as fractions. */
export interface SolvedReport {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** The judged unit; verdicts on steps have another report. */
  readonly unit: 'problems';
  readonly data: { readonly problems: number; readonly trained_tokens: number };
  /**
   * Metrics of the trained model on all test problems; those of a group have its name in front, as in `level 1.pass@1`.
   */
  readonly metrics: Readonly<Record<string, number>>;
  /** The same on the validation problems, by which a sweep may select. */
  readonly metrics_validation?: Readonly<Record<string, number>>;
  /** Metrics by model, in the order of training; the trained one is the last. */
  readonly models: Readonly<Record<string, SolvedGroups>>;
  /** Metrics of a method that learns corrections, which the table shows instead. */
  readonly corrections?: CorrectionReport;
}

/** `metrics` of a model, by name, and by group and name. */
export function flatMetrics(groups: SolvedGroups): Record<string, number> {
  return Object.fromEntries(
    Object.entries(groups).flatMap(([group, metrics]) =>
      Object.entries(metrics).map(([name, { value }]) => [
        group === 'all' ? name : `${group}.${name}`,
        value,
      ]),
    ),
  );
}

/** Whether the value has the fields that the table reads. */
function isCorrectionReport(found: unknown): boolean {
  const { greedy, greedy_corrections: own } = (found ?? {}) as Partial<CorrectionReport>;
  return typeof greedy?.metrics === 'object' && typeof own?.errors === 'object';
}

const numbers = z.record(z.string(), z.number());
const schema = z.strictObject({
  method: z.string(),
  unit: z.literal('problems'),
  data: z.strictObject({ problems: z.int().min(0), trained_tokens: z.number().min(0) }),
  metrics: numbers,
  metrics_validation: numbers.exactOptional(),
  models: z.record(z.string(), z.record(z.string(), z.record(z.string(), metricValue))),
  corrections: z.custom<CorrectionReport>(isCorrectionReport).exactOptional(),
} satisfies Record<keyof SolvedReport, z.ZodType>);

/**
 * Reads the report of a run directory; undefined where its eval.json is absent or of another kind.
 *
 * @throws RunError for one that is damaged
 */
export async function readSolvedReport(directory: string): Promise<SolvedReport | undefined> {
  const path = join(directory, 'eval.json');
  if (!existsSync(path)) return undefined;
  const content = await readJson(path);
  if ((content as { unit?: unknown } | null)?.unit !== 'problems') return undefined;
  return readAs(schema, content, `${path} is not an evaluation of steptrain`);
}

/** Models beyond which only the first and the last have their intervals: a terminal has 80 columns. */
const MAX_INTERVALS = 3;

/** Metrics shown for every model, in the order of the rows. For groups, `pass@1` alone is shown. */
const SHOWN = ['sampled pass@1', 'maj@', 'right_and_clean', 'step_errors', 'wrong_steps', 'duplicate_steps'];

/** Titles that only this table uses; docs/methods/step-kto.md has both names. */
const TITLES: Readonly<Record<string, string>> = {
  right_and_clean: 'right with every step right',
  duplicate_steps: 'steps said twice',
};

/** A column for each model: the share of problems solved, for all and by group, and other measures for all. */
export function formatSolvedReport(report: SolvedReport, { boxed }: { readonly boxed: boolean }): string {
  if (report.corrections) return formatCorrectionReport(report.corrections, { boxed });
  const rows = solvedRows(report, MAX_INTERVALS);
  return formatTable(rows, { boxed });
}

/** Cells of the table. With more models than `mostIntervals`, only the first and the last have their intervals. */
export function solvedRows(
  { models, data }: SolvedReport,
  mostIntervals = Number.POSITIVE_INFINITY,
): string[][] {
  const named = Object.entries(models);
  const [, first = {}] = named[0] ?? [];
  const withInterval = (i: number) => named.length <= mostIntervals || i === 0 || i === named.length - 1;
  const row = (title: string, group: string, name: string) => [
    title,
    ...named.map(([, of], i) => cell(name, of[group]?.[name], withInterval(i))),
  ];
  const { all = {}, ...groups } = first;
  const further = SHOWN.flatMap((prefix) => Object.keys(all).filter((name) => name.startsWith(prefix)));
  return [
    [`${plural(data.problems, 'problem')}, %`, ...named.map(([name]) => name)],
    row('solved', 'all', 'pass@1'),
    ...Object.keys(groups).map((group) => row(`  ${group}`, group, 'pass@1')),
    ...further.map((name) => row(TITLES[name] ?? metricTitle(name), 'all', name)),
    row('cut off', 'all', 'truncated'),
    row('tokens', 'all', 'tokens'),
  ];
}

function cell(name: string, metric: MetricValue | undefined, withInterval: boolean): string {
  if (!metric) return '';
  if (name === 'tokens') return metric.value.toFixed(1);
  const { value, interval } = metric;
  return `${percent(value)}${interval && withInterval ? ` (${interval.map((end) => percent(end)).join(' to ')})` : ''}`;
}
