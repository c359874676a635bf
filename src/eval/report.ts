// The results of an evaluation: the object written to eval.json and the table printed at the end of a run.
import type { Intervals } from './bootstrap.js';
import type { Calibration } from './calibration.js';
import type { Baselines, ConfusionMetrics, VerdictMetrics } from './metrics.js';
import { percent } from './percent.js';
import type { ProcessBenchReport } from './solutions.js';
import { boxedTable, plainTable, wrapped } from './table.js';
import type { ThresholdSweep } from './thresholds.js';

/** The content of eval.json. Every metric is a fraction in [0, 1]. */
export interface EvalReport {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Where the judged steps came from: source, files, counts. */
  readonly data: Readonly<Record<string, unknown>>;
  readonly metrics: VerdictMetrics;
  /** Constant and random verdicts, and models by name (`sft`, `before`) judged on the same steps. */
  readonly baselines: Baselines & Readonly<Record<string, VerdictMetrics>>;
  /** Bootstrap intervals of the metrics over problems. */
  readonly intervals?: Intervals;
  /** Calibration of the probability of "correct"; absent if no step was judged. */
  readonly calibration?: Calibration;
  /** Metrics at other thresholds on the probability. */
  readonly threshold_sweep?: ThresholdSweep;
  /** Localisation of the first wrong step; absent if no solution has the labels for it. */
  readonly processbench?: ProcessBenchReport;
  /** Sentences about suspicious findings. */
  readonly warnings?: readonly string[];
}

const METRICS = [
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
] as const satisfies readonly (readonly [keyof ConfusionMetrics, string])[];

const TITLES: Readonly<Record<keyof Baselines, string>> = {
  random: 'random',
  majority: 'majority',
  always_positive: 'all correct',
  always_negative: 'all wrong',
};

interface Column {
  readonly title: string;
  readonly cell: (metric: (typeof METRICS)[number][0] | 'auc') => string;
}

/**
 * A table of the model beside its baselines, in percent, followed by the other results in lines that fit a terminal.
 * `boxed` draws a frame for a terminal; otherwise plain columns. The constant baselines other than `majority` are left
 * out if there are intervals or trained baselines.
 */
export function formatEvalTable(report: EvalReport, { boxed }: { readonly boxed: boolean }): string {
  const { metrics } = report;
  const columns = tableColumns(report);
  const rows = [
    [`${metrics.n} steps, %`, ...columns.map(({ title }) => title)],
    ...METRICS.map(([key, title]) => [title, ...columns.map(({ cell }) => cell(key))]),
  ];
  if (metrics.auc !== undefined) rows.push(['AUC', ...columns.map(({ cell }) => cell('auc'))]);
  const table = boxed ? boxedTable(rows) : plainTable(rows);
  return [table, ...notes(report).map(wrapped)].join('\n');
}

function tableColumns({ method, metrics, baselines, intervals }: EvalReport): Column[] {
  const column = (title: string, of: VerdictMetrics, auc = of.auc): Column => ({
    title,
    cell: (key) => (key !== 'auc' ? percent(of[key]) : auc === undefined ? '' : percent(auc)),
  });
  const trivial = (names: readonly (keyof Baselines)[]) =>
    names.map((name) => column(TITLES[name], baselines[name], 0.5));
  const trained = Object.entries(baselines).filter(([name]) => !(name in TITLES));
  const columns = [column(method, metrics)];
  if (intervals) {
    columns.push({
      title: `${percent(intervals.confidence, 0)} % CI`,
      cell: (key) => intervals.metrics[key]?.map((end) => (end === 1 ? '100' : percent(end))).join('-') ?? '',
    });
  }
  columns.push(...trained.map(([name, of]) => column(name, of)));
  return columns.length > 1
    ? [...columns, ...trivial(['random', 'majority'])]
    : [...columns, ...trivial(['random', 'majority', 'always_positive', 'always_negative'])];
}

function notes(report: EvalReport): string[] {
  const { metrics, intervals, calibration, threshold_sweep, processbench, warnings = [] } = report;
  const lines: string[] = [];
  if (metrics.invalid) lines.push(`verdicts that could not be read: ${metrics.invalid}`);
  if (intervals)
    lines.push(
      `intervals: ${intervals.resamples} bootstrap samples of ${intervals.problems} problems (seed ${intervals.seed})`,
    );
  if (calibration)
    lines.push(
      `calibration: expected error ${percent(calibration.ece)}, Brier score ${calibration.brier.toFixed(3)}`,
    );
  if (threshold_sweep?.chosen) {
    const { f1_macro, balanced_accuracy } = threshold_sweep.chosen;
    lines.push(
      `thresholds chosen on validation steps: ${f1_macro.threshold.toFixed(3)} for F1 macro (gives ` +
        `${percent(f1_macro.metrics.f1_macro)} here), ${balanced_accuracy.threshold.toFixed(3)} for balanced accuracy ` +
        `(gives ${percent(balanced_accuracy.metrics.balanced_accuracy)})`,
    );
  }
  if (processbench) {
    const { subsets, average_f1 } = processbench;
    for (const [name, { n, err_acc, cor_acc, f1 }] of Object.entries(subsets))
      lines.push(
        `ProcessBench F1, ${name}: ${percent(f1)} (${n} solutions; first wrong step found in ${percent(err_acc)}, none ` +
          `seen in ${percent(cor_acc)} of the faultless)`,
      );
    if (Object.keys(subsets).length > 1)
      lines.push(`ProcessBench F1, average over subsets: ${percent(average_f1)}`);
  }
  return [...lines, ...warnings.map((sentence) => `Warning: ${sentence}`)];
}
