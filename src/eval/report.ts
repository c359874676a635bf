// The results of an evaluation: the object written to eval.json and the table printed at the end of a run.

import type { Intervals } from './bootstrap.js';
import type { Calibration } from './calibration.js';
import { type GroupMetrics, groupRows } from './groups.js';
import { type LikelihoodReport, likelihoodNote, likelihoodRows } from './likelihood-report.js';
import type { Baselines, ConfusionMetrics, VerdictMetrics } from './metrics.js';
import type { Difference } from './paired.js';
import { percent } from './percent.js';
import { likelihoodReading, readingOf, standingReading } from './reading.js';
import { formatProcessBench, type ProcessBenchReport } from './solutions.js';
import { errorRows, type StepErrorMetrics } from './step-errors.js';
import { boxedTable, plainTable, wrapped } from './table.js';
import type { ThresholdSweep } from './thresholds.js';

/** The content of eval.json. Every metric is a fraction in [0, 1]. */
export interface EvalReport {
  /** The training method, as in the configuration. */
  readonly method: string;
  /** Where the judged steps came from: source, files, counts. */
  readonly data: Readonly<Record<string, unknown>>;
  readonly metrics: VerdictMetrics;
  /** What is judged. Default steps. */
  readonly unit?: 'steps' | 'solutions';
  /** Constant and random verdicts, and models by name (`sft`, `before`) judged on the same steps. */
  readonly baselines: Baselines & Readonly<Record<string, VerdictMetrics>>;
  /** Of the trained model on the validation steps: what a sweep may select by. */
  readonly metrics_validation?: VerdictMetrics;
  /** The same metrics over the steps that stand word for word in the training data, and over all others. */
  readonly metrics_seen?: VerdictMetrics;
  readonly metrics_unseen?: VerdictMetrics;
  /** `baselines` and `intervals` over the unseen steps. */
  readonly baselines_unseen?: EvalReport['baselines'];
  readonly intervals_unseen?: Intervals;
  /** F1 macro of the model less that of the others, on the unseen steps where there are any. */
  readonly differences?: Differences;
  /** The reward network as a judge: the verdict that it scores higher. Also `frn` among the baselines. */
  readonly reward_network?: Readonly<Record<'validation' | 'test', NetworkReport>>;
  /** Of verdicts that are also judged by how likely the base finds the steps. */
  readonly likelihood?: LikelihoodReport;
  /** Of a reward model that scores solutions beside their steps. */
  readonly outcomes?: OutcomeReport;
  /** Bootstrap intervals of the metrics over problems. */
  readonly intervals?: Intervals;
  /** Calibration of the probability of "correct"; absent if no step was judged. */
  readonly calibration?: Calibration;
  /** Metrics at other thresholds on the probability. */
  readonly threshold_sweep?: ThresholdSweep;
  /** Localisation of the first wrong step; absent if no solution has the labels for it. */
  readonly processbench?: ProcessBenchReport;
  /** The metrics of each value of `data.group_by`. */
  readonly groups?: Readonly<Record<string, GroupMetrics>>;
  /** What is told of the right steps, and of each kind of wrong ones; absent where the data do not say the kinds. */
  readonly errors?: Readonly<Record<string, StepErrorMetrics>>;
  /** Sentences about suspicious findings. */
  readonly warnings?: readonly string[];
}

export interface Differences {
  readonly steps: 'all' | 'unseen';
  readonly n: number;
  /** By name, as in `baselines`; `random` has no sampling error of its own. */
  readonly to: Readonly<Record<string, Omit<Difference, 'p'>>>;
}

/** How well the reward network tells right from wrong on a held-out part. */
export interface NetworkReport {
  readonly metrics: VerdictMetrics;
  /** Share of the pairs, as in its training, whose right side has the higher score. */
  readonly pair_accuracy: number;
  /** The score from which a step is right, chosen on validation steps, of a network that scores steps (`frn.pair_mode: step`). */
  readonly threshold?: number;
  /** Of σ(score of "right" − score of "wrong") as the probability of "right"; absent without steps, and with a threshold. */
  readonly calibration?: Calibration;
}

/** Whole solutions judged right or wrong. */
export interface OutcomeReport {
  readonly metrics: VerdictMetrics;
  /** A logistic regression on length and termination alone. */
  readonly length: VerdictMetrics;
  /** Absent without solutions. */
  readonly calibration?: Calibration;
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

/** Shorter titles for a table. */
const NAMES: Readonly<Record<string, string>> = { sft_continued: 'continued' };

/** Of the steps to read, the unseen ones where there are some. */
const READ_METRICS = METRICS.filter(([key]) => ['acc_pos', 'acc_neg', 'f1_macro'].includes(key));

type MetricKey = (typeof METRICS)[number][0] | 'auc';

interface Column {
  readonly title: string;
  readonly cell: (metric: MetricKey, steps: 'all' | 'unseen') => string;
}

/** A table fits a terminal of this width: columns of baselines that never read a step are left out where it would not. */
const WIDTH = 80;

/**
 * A table of the model beside its baselines, in percent, followed by the other results in lines that fit a terminal.
 * `boxed` draws a frame for a terminal; otherwise plain columns. The constant baselines other than `majority` are left
 * out if there are intervals or trained baselines. Where some of the steps also stand in the training data, the rows of
 * the others follow.
 */
export function formatEvalTable(report: EvalReport, { boxed }: { readonly boxed: boolean }): string {
  if (report.metrics.n === 0) {
    const why =
      'No test step was judged, so there is no table: the test part is empty, or none of its steps has a label.';
    return [why, ...notes(report)].map(wrapped).join('\n');
  }
  const { own, trivial } = tableColumns(report);
  const draw = (columns: readonly Column[]) => {
    const rows = tableRows(report, columns);
    return boxed ? boxedTable(rows) : plainTable(rows);
  };
  const fits = (columns: readonly Column[]) =>
    draw(columns)
      .split('\n')
      .every((line) => line.length <= WIDTH);
  const kept = trivial.findLastIndex((_, i) => fits([...own, ...trivial.slice(0, i + 1)]));
  const breakdowns = breakdownRows(report);
  return [
    ...readings(report).map(wrapped),
    draw([...own, ...trivial.slice(0, kept + 1)]),
    ...breakdowns.map((rows) => (boxed ? boxedTable(rows) : plainTable(rows))),
    ...notes(report).map(wrapped),
  ].join('\n');
}

/** The same for another form than text: the rows to read, all rows, and sentences. */
export interface EvalTable {
  /** What the table says. */
  readonly readings: readonly string[];
  /** Titles, then the four rows to read: of the steps that training never saw, where there are some. Empty without a judged step. */
  readonly main: readonly (readonly string[])[];
  /** Titles, then every metric of all steps. */
  readonly all: readonly (readonly string[])[];
  readonly notes: readonly string[];
}

export function evalTable(report: EvalReport): EvalTable {
  const { own, trivial } = tableColumns(report);
  const columns = [...own, ...trivial];
  const { metrics, metrics_unseen, unit = 'steps' } = report;
  const none = metrics.n === 0;
  const main = metrics_unseen
    ? [
        [`${metrics_unseen.n} unseen ${unit}, %`, ...columns.map(({ title }) => title)],
        ...readRows(metrics_unseen, columns, 'unseen'),
      ]
    : [
        [`${metrics.n} ${unit}, %`, ...columns.map(({ title }) => title)],
        ...readRows(metrics, columns, 'all'),
      ];
  return {
    readings: readings(report),
    main: none ? [] : main,
    all: none ? [] : allRows(report, columns),
    notes: notes(report),
  };
}

/** Tables of the same steps in other lights; each with its titles first. */
export function breakdownRows(report: EvalReport): string[][][] {
  return [likelihoodRows(report), errorRows(report), groupRows(report)].filter((rows) => rows.length > 0);
}

function tableRows(report: EvalReport, columns: readonly Column[]): string[][] {
  const { metrics_seen, metrics_unseen } = report;
  const rows = allRows(report, columns);
  if (metrics_seen && metrics_unseen)
    rows.push(
      [`${metrics_unseen.n} unseen`, ...columns.map(() => '')],
      ...readRows(metrics_unseen, columns, 'unseen'),
    );
  return rows;
}

type Steps = Parameters<Column['cell']>[1];

function rowsOf(
  metrics: readonly (readonly [MetricKey, string])[],
  columns: readonly Column[],
  steps: Steps,
): string[][] {
  return metrics.map(([key, title]) => [title, ...columns.map(({ cell }) => cell(key, steps))]);
}

/** Titles, then every metric of all steps. */
function allRows({ metrics, unit = 'steps' }: EvalReport, columns: readonly Column[]): string[][] {
  return [
    [`${metrics.n} ${unit}, %`, ...columns.map(({ title }) => title)],
    ...rowsOf([...METRICS, ...aucRow(metrics)], columns, 'all'),
  ];
}

/** Both recalls, F1 macro and AUC. */
function readRows(metrics: VerdictMetrics, columns: readonly Column[], steps: Steps): string[][] {
  return rowsOf([...READ_METRICS, ...aucRow(metrics)], columns, steps);
}

function aucRow({ auc }: VerdictMetrics): readonly (readonly [MetricKey, string])[] {
  return auc === undefined ? [] : [['auc', 'AUC']];
}

function tableColumns(report: EvalReport): Readonly<Record<'own' | 'trivial', Column[]>> {
  const { method, metrics, metrics_unseen, baselines, baselines_unseen, intervals, intervals_unseen } =
    report;
  const column = (title: string, all: VerdictMetrics, unseen = metrics_unseen, auc?: number): Column => ({
    title,
    cell(key, steps) {
      const of = steps === 'all' ? all : unseen;
      const constant = (steps === 'all' ? baselines : baselines_unseen)?.always_positive;
      if (constant && needsOtherClass(key, constant)) return '–';
      const value = key === 'auc' ? (of?.auc ?? auc) : of?.[key];
      return value === undefined ? '' : percent(value);
    },
  });
  const trivial = (names: readonly (keyof Baselines)[]) =>
    names.map((name) => column(TITLES[name], baselines[name], baselines_unseen?.[name], 0.5));
  const trained = Object.entries(baselines).filter(([name]) => !(name in TITLES));
  const own = [column(method, metrics, metrics_unseen)];
  if (intervals) {
    own.push({
      title: `${percent(intervals.confidence, 0)} % CI`,
      cell(key, steps) {
        const ends = (steps === 'all' ? intervals : intervals_unseen)?.metrics[key];
        return ends?.map((end) => (end === 1 ? '100' : percent(end))).join('-') ?? '';
      },
    });
  }
  own.push(...trained.map(([name, of]) => column(NAMES[name] ?? name, of, baselines_unseen?.[name])));
  return {
    own,
    trivial:
      own.length > 1
        ? trivial(['random', 'majority'])
        : trivial(['random', 'majority', 'always_positive', 'always_negative']),
  };
}

const aucOf = ({ auc }: VerdictMetrics) => (auc === undefined ? '' : `, AUC ${percent(auc)}`);

/**
 * Whether `metric` is 0/0, or a mean with such a part, where only one class was judged: `always_positive` has accuracy 1
 * without wrong steps, and 0 without right ones.
 */
function needsOtherClass(metric: MetricKey, { n, accuracy }: ConfusionMetrics): boolean {
  if (n === 0 || (accuracy > 0 && accuracy < 1)) return false;
  if (['balanced_accuracy', 'f1_macro', 'f1_harmonic', 'auc'].includes(metric)) return true;
  return accuracy === 1 ? ['acc_neg', 'f1_neg'].includes(metric) : ['acc_pos', 'f1_pos'].includes(metric);
}

function notes(report: EvalReport): string[] {
  const {
    metrics,
    intervals,
    calibration,
    reward_network,
    outcomes,
    threshold_sweep,
    processbench,
    warnings = [],
  } = report;
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
  if (reward_network) {
    const { validation, test } = reward_network;
    lines.push(
      `reward network (frn) as a judge: F1 macro ${percent(test.metrics.f1_macro)} (validation ` +
        `${percent(validation.metrics.f1_macro)}), pairs in the right order ${percent(test.pair_accuracy)}` +
        `${test.threshold === undefined ? '' : `, steps right from a score of ${test.threshold.toPrecision(3)} on, chosen on validation`}` +
        `${test.calibration ? `, expected calibration error ${percent(test.calibration.ece)}` : ''}`,
    );
  }
  lines.push(...likelihoodNote(report));
  if (outcomes)
    lines.push(
      `outcomes of ${outcomes.metrics.n} solutions: F1 macro ${percent(outcomes.metrics.f1_macro)}${aucOf(outcomes.metrics)}; ` +
        `length and termination alone: F1 macro ${percent(outcomes.length.f1_macro)}${aucOf(outcomes.length)}`,
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
    for (const [name, score] of Object.entries(subsets))
      lines.push(`ProcessBench F1, ${name}: ${formatProcessBench(score)}`);
    if (average_f1 !== undefined && Object.keys(subsets).length > 1)
      lines.push(`ProcessBench F1, average over subsets: ${percent(average_f1)}`);
  }
  return [...lines, ...warnings.map((sentence) => `Warning: ${sentence}`)];
}

/** What the table says; it comes first. */
function readings(report: EvalReport): string[] {
  const { method, metrics, metrics_unseen, differences } = report;
  return [
    ...(differences ? readingOf(method, metrics_unseen ?? metrics, differences) : []),
    ...standingReading(report),
    ...likelihoodReading(report),
  ];
}
