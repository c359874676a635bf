// What an evaluation leaves: the object written to eval.json and the table printed at the end of a run.
import Table from 'cli-table3';
import { z } from 'zod';
import { RunError } from '../run/error.js';
import { readJson } from '../run/json-file.js';
import type { Baselines, VerdictMetrics } from './metrics.js';

/** The content of eval.json. */
export interface EvalReport {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Where the judged steps came from: source, files, counts. */
  readonly data: Readonly<Record<string, unknown>>;
  readonly metrics: VerdictMetrics & {
    /** Steps whose verdict could not be read. */
    readonly invalid?: number;
    /** Area under the ROC curve of the probability of "correct"; absent where only one class was judged. */
    readonly auc?: number;
  };
  readonly baselines: Baselines;
}

const FIGURES = [
  ['acc_pos', 'Acc_pos'],
  ['acc_neg', 'Acc_neg'],
  ['balanced_accuracy', 'balanced accuracy'],
  ['accuracy', 'accuracy'],
  ['f1_pos', 'F1_pos'],
  ['f1_neg', 'F1_neg'],
  ['f1_macro', 'F1 macro'],
  ['f1_micro', 'F1 micro'],
  ['f1_weighted', 'F1 weighted'],
  ['f1_harmonic', 'F1 harmonic'],
] as const satisfies readonly (readonly [keyof VerdictMetrics, string])[];

const BASELINES = [
  ['random', 'random'],
  ['majority', 'majority'],
  ['always_positive', 'all correct'],
  ['always_negative', 'all wrong'],
] as const satisfies readonly (readonly [keyof Baselines, string])[];

/** The model beside its baselines, in percent. `boxed` draws a frame for a terminal; otherwise plain columns. */
export function formatEvalTable(report: EvalReport, { boxed }: { readonly boxed: boolean }): string {
  const { metrics, baselines } = report;
  const columns = [metrics, ...BASELINES.map(([key]) => baselines[key])];
  const rows = [
    [`${metrics.n} steps, %`, report.method, ...BASELINES.map(([, title]) => title)],
    ...FIGURES.map(([key, title]) => [title, ...columns.map((column) => (100 * column[key]).toFixed(1))]),
  ];
  if (metrics.auc !== undefined)
    rows.push(['AUC', (100 * metrics.auc).toFixed(1), ...BASELINES.map(() => '50.0')]);
  const table = boxed ? boxedTable(rows) : plainTable(rows);
  return metrics.invalid ? `${table}\nverdicts that could not be read: ${metrics.invalid}` : table;
}

function boxedTable([head, ...rows]: readonly string[][]): string {
  const table = new Table({
    head: head!,
    colAligns: head!.map((_, i) => (i === 0 ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  });
  table.push(...rows);
  return table.toString();
}

function plainTable(rows: readonly string[][]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows
    .map((row) =>
      row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '),
    )
    .join('\n');
}

const fraction = z.number().min(0).max(1);
const verdicts = z.looseObject({
  n: z.number().min(0),
  accuracy: fraction,
  acc_pos: fraction,
  acc_neg: fraction,
  balanced_accuracy: fraction,
  f1_pos: fraction,
  f1_neg: fraction,
  f1_macro: fraction,
  f1_micro: fraction,
  f1_weighted: fraction,
  f1_harmonic: fraction,
});

const reportSchema = z.strictObject({
  method: z.string(),
  data: z.record(z.string(), z.unknown()),
  metrics: verdicts.extend({ invalid: z.number().min(0).exactOptional(), auc: fraction.exactOptional() }),
  baselines: z.strictObject({
    always_positive: verdicts,
    always_negative: verdicts,
    majority: verdicts,
    random: verdicts,
  }),
});

/** Reads eval.json. Throws one sentence where the file is missing or holds something else. */
export async function readEvalReport(path: string): Promise<EvalReport> {
  const parsed = reportSchema.safeParse(await readJson(path));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new RunError(
    `${path} is not an evaluation of steptrain: ${issue?.path.join('.')}: ${issue?.message}`,
  );
}
