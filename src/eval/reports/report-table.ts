// The table and the sentences of an evaluation, printed at the end of a run and shown on its page.
import { plural } from '../../native/shown.js';
import { formatTable, wrapped } from '../../terminal/table.js';
import { groupRows } from '../groups.js';
import { prmScoreLine } from '../prmbench.js';
import {
  type Baselines,
  type ConfusionMetrics,
  needsOtherClass,
  type VerdictMetrics,
} from '../statistics/metrics.js';
import { percent } from '../statistics/percent.js';
import { formatProcessBench } from '../statistics/solutions.js';
import { errorRows } from '../step-errors.js';
import type { SureReport } from '../sure.js';
import type { EvalReport, VerdictReport } from './eval-report.js';
import { judgeInProse, judgeName, likelihoodNote } from './likelihood-report.js';
import { BRACKETS, isMute, readingOf } from './reading.js';

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
  always_positive: 'all right',
  always_negative: 'all wrong',
};

/** Shorter titles for a table. */
const NAMES: Readonly<Record<string, string>> = {
  sft: 'warm-up',
  words: 'verdicts alone',
  reward_network: 'network',
};

/** Models that training began with, whose columns come before that of the trained one. */
const BEFORE: readonly string[] = ['before', 'sft'];

/** Metrics shown for the rows to read, on the unseen steps where there are some. */
const READ_METRICS = METRICS.filter(([key]) => ['acc_pos', 'acc_neg', 'f1_macro'].includes(key));

type MetricKey = (typeof METRICS)[number][0] | 'auc';

interface Column {
  readonly title: string;
  readonly cell: (metric: MetricKey, steps: 'all' | 'unseen') => string;
}

/** A table fits a terminal of this width: columns of baselines that never read a step are left out where it would not. */
const WIDTH = 80;

/**
 * A table of the model and its baselines, in percent, followed by the other results in lines that fit a terminal.
 * `boxed` draws a frame for a terminal; otherwise columns are plain. The constant baselines other than `majority` are
 * left out if there are intervals or trained baselines. Where some of the steps also occur in the training data, rows
 * on the other steps follow.
 */
export function formatEvalTable(
  report: EvalReport,
  { boxed = false }: { readonly boxed?: boolean } = {},
): string {
  if (report.metrics.n === 0) return [NOT_JUDGED, ...notes(report)].map(wrapped).join('\n');
  const { own, trivial } = tableColumns(report);
  const framed = (rows: readonly string[][]) => formatTable(rows, { boxed });
  const draw = (columns: readonly Column[]) => framed(tableRows(report, columns));
  const fits = (columns: readonly Column[]) =>
    draw(columns)
      .split('\n')
      .every((line) => line.length <= WIDTH);
  const kept = trivial.findLastIndex((_, i) => fits([...own, ...trivial.slice(0, i + 1)]));
  return [
    ...readings(report).map(wrapped),
    draw([...own, ...trivial.slice(0, kept + 1)]),
    ...breakdownRows(report).map(framed),
    ...(report.words?.differences ? [wrapped(VERDICTS_ALONE), framed(wordsRows(report.words))] : []),
    ...notes(report).map(wrapped),
  ].join('\n');
}

/**
 * The table printed at the end of a run: the trained model compared with its starting point, on one screen. The page of
 * the run has the rest.
 */
export function formatTrainedTable(
  report: EvalReport,
  { boxed = false }: { readonly boxed?: boolean } = {},
): string {
  const { metrics, words } = report;
  const said = resultNotes(report);
  if (metrics.n === 0) return [NOT_JUDGED, ...said].map(wrapped).join('\n');
  const framed = (rows: readonly string[][]) => formatTable(rows, { boxed });
  return [
    ...readings(report).map(wrapped),
    framed(wordsRows(words ?? report)),
    ...(words ? [wrapped(keptLine(report)), framed(f1Rows(wordsRows(report)))] : []),
    ...(breakdownRows(report).length > 0 ? [wrapped(BREAKDOWNS)] : []),
    ...said.map(wrapped),
  ].join('\n');
}

/** Instead of the tables by kind of error and by group, which fill a screen. */
const BREAKDOWNS = 'Tables by kind of error or by group: `steptrain eval` on this run, or its page.';

const NOT_JUDGED =
  'No test step was judged, so there is no table: the test part is empty, or none of its steps has a label.';

/** The line above the table of the judge that is kept. */
export function keptLine({ likelihood }: Pick<EvalReport, 'likelihood'>): string {
  const isComputed = likelihood?.weights.of === 'calculations';
  if (likelihood?.weights.verdict === 0)
    return `The judge that is kept goes by ${isComputed ? 'calculations' : 'how likely the base finds a line'} alone:`;
  return `The judge that is kept weighs these verdicts with ${isComputed ? 'calculations, which it computes' : 'how likely the base finds a line'}:`;
}

/** Above the table of the verdicts alone. */
const VERDICTS_ALONE = 'The verdicts alone, beside other models that write them:';

/** The titles and the rows of F1 macro. */
const f1Rows = ([titles = [], ...rows]: string[][]) => [
  titles,
  ...rows.filter(([name]) => name?.startsWith('F1 macro')),
];

/** The rows to read, without baselines that never read a step. */
const wordsRows = (words: VerdictReport) => mainRows(words, tableColumns(words).own);

/** The parts of a report for forms other than text: the rows to read, all rows, and sentences. */
export interface EvalTable {
  /** Sentences that sum up the table. */
  readonly readings: readonly string[];
  /**
   * Titles, then the four rows to read, on steps that training never saw where there are some. Empty without a judged
   * step.
   */
  readonly main: readonly (readonly string[])[];
  /** Titles, then every metric of all steps. */
  readonly all: readonly (readonly string[])[];
  readonly notes: readonly string[];
  /** The table of the verdict words alone, where the judge weighs them with other evidence. */
  readonly words?: Omit<EvalTable, 'notes'>;
}

export function evalTable(report: EvalReport): EvalTable {
  const { own, trivial } = tableColumns(report);
  const columns = [...own, ...trivial];
  const none = report.metrics.n === 0;
  return {
    readings: readings(report),
    main: none ? [] : mainRows(report, columns),
    all: none ? [] : allRows(report, columns),
    notes: notes(report),
    ...(report.words ? { words: evalTable(report.words) } : {}),
  };
}

function mainRows(
  { metrics, metrics_unseen, unit = 'steps' }: VerdictReport,
  columns: readonly Column[],
): string[][] {
  const titles = columns.map(({ title }) => title);
  return metrics_unseen
    ? [
        [`${metrics_unseen.n} unseen ${unit}, %`, ...titles],
        ...readRows(metrics_unseen, columns, 'unseen'),
        [`F1 macro, all ${metrics.n}`, ...columns.map(({ cell }) => cell('f1_macro', 'all'))],
      ]
    : [[`${metrics.n} ${unit}, %`, ...titles], ...readRows(metrics, columns, 'all')];
}

/** Tables of the same steps in other lights; each with its titles first. */
export function breakdownRows(report: EvalReport): string[][][] {
  return [errorRows(report), groupRows(report)].filter((rows) => rows.length > 0);
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
  const { metrics, metrics_unseen, baselines, baselines_unseen, intervals, intervals_unseen } = report;
  const isUndefined = (key: MetricKey, steps: Steps) => {
    const constant = (steps === 'all' ? baselines : baselines_unseen)?.always_positive;
    return constant !== undefined && needsOtherClass(key, constant);
  };
  const column = (title: string, all: VerdictMetrics, unseen = metrics_unseen, auc?: number): Column => ({
    title,
    cell(key, steps) {
      const of = steps === 'all' ? all : unseen;
      if (isUndefined(key, steps)) return '–';
      const value = key === 'auc' ? (of?.auc ?? auc) : of?.[key];
      return value === undefined ? '' : percent(value);
    },
  });
  const trivial = (names: readonly (keyof Baselines)[]) =>
    names.map((name) => column(TITLES[name], baselines[name], baselines_unseen?.[name], 0.5));
  const trained = trainedBaselines(baselines);
  const others = (isBefore: boolean) =>
    trained
      .filter(([name]) => BEFORE.includes(name) === isBefore)
      .map(([name, of]) => column(NAMES[name] ?? name, of, baselines_unseen?.[name]));
  const own = [...others(true), column(judgeName(report), metrics, metrics_unseen)];
  if (intervals) {
    own.push({
      title: `${percent(intervals.confidence, 0)} % CI`,
      cell(key, steps) {
        if (isUndefined(key, steps)) return '';
        const ends = (steps === 'all' ? intervals : intervals_unseen)?.metrics[key];
        return ends?.map((end) => (end === 1 ? '100' : percent(end))).join('-') ?? '';
      },
    });
  }
  own.push(...others(false));
  return {
    own,
    trivial:
      own.length > 1
        ? trivial(['random', 'majority'])
        : trivial(['random', 'majority', 'always_positive', 'always_negative']),
  };
}

/** The models beside the trained one, without those that wrote no verdict that can be read, unless there is no other. */
function trainedBaselines(baselines: VerdictReport['baselines']) {
  const all = Object.entries(baselines).filter(([name]) => !(name in TITLES));
  const readable = all.filter(([, metrics]) => !isMute(metrics));
  return readable.length > 0 ? readable : all;
}

const aucOf = ({ auc }: VerdictMetrics) => (auc === undefined ? '' : `, AUC ${percent(auc)}`);

function sureNote({ least, share, metrics }: SureReport): string {
  const worth = metrics
    ? `: F1 macro ${percent(metrics.f1_macro)}, accuracy ${percent(metrics.accuracy)} there`
    : '';
  return `sure (a verdict of at least ${percent(least)} %) of ${percent(share)} % of the steps${worth}; the tables count all verdicts`;
}

/** All sentences below the tables. */
function notes(report: EvalReport): string[] {
  const { intervals, calibration, threshold_sweep } = report;
  const lines: string[] = [];
  if (intervals)
    lines.push(
      `intervals: ${intervals.resamples} bootstrap samples of ${plural(intervals.problems, 'problem')} (seed ${intervals.seed}); of shares of 0 and 1 Wilson's`,
    );
  if (calibration)
    lines.push(
      `calibration: expected error ${percent(calibration.ece)}, Brier score ${calibration.brier.toFixed(3)}`,
    );
  if (report.sure) lines.push(sureNote(report.sure));
  lines.push(...likelihoodNote(report));
  if (threshold_sweep?.chosen) {
    const { f1_macro, balanced_accuracy } = threshold_sweep.chosen;
    lines.push(
      `thresholds chosen on validation steps: ${f1_macro.threshold.toFixed(3)} for F1 macro (gives ` +
        `${percent(f1_macro.metrics.f1_macro)} here), ${balanced_accuracy.threshold.toFixed(3)} for balanced accuracy ` +
        `(gives ${percent(balanced_accuracy.metrics.balanced_accuracy)}); the verdicts here take ${(report.threshold ?? 0.5).toFixed(3)}`,
    );
  }
  return [...lines, ...resultNotes(report)];
}

/** Further results, and what warns of them. */
function resultNotes(report: EvalReport): string[] {
  const { metrics, reward_network, outcomes, processbench, warnings = [] } = report;
  const lines: string[] = [];
  if (metrics.invalid) lines.push(`verdicts that could not be read: ${metrics.invalid}`);
  if (reward_network) {
    const { validation, test } = reward_network;
    lines.push(
      `reward network as a judge: F1 macro ${percent(test.metrics.f1_macro)} (validation ` +
        `${percent(validation.metrics.f1_macro)}), pairs in the right order ${percent(test.pair_accuracy)}` +
        `${test.threshold === undefined ? '' : `, steps right from a score of ${test.threshold.toPrecision(3)} on, chosen on validation`}` +
        `${test.calibration ? `, expected calibration error ${percent(test.calibration.ece)}` : ''}`,
    );
  }
  if (outcomes)
    lines.push(
      `outcomes of ${plural(outcomes.metrics.n, 'solution')}: F1 macro ${percent(outcomes.metrics.f1_macro)}${aucOf(outcomes.metrics)}; ` +
        `length and termination alone: F1 macro ${percent(outcomes.length.f1_macro)}${aucOf(outcomes.length)}`,
    );
  if (processbench) {
    const { subsets, average_f1 } = processbench;
    for (const [name, score] of Object.entries(subsets))
      lines.push(`ProcessBench F1, ${name}: ${formatProcessBench(score)}`);
    if (average_f1 !== undefined && Object.keys(subsets).length > 1)
      lines.push(`ProcessBench F1, average over subsets: ${percent(average_f1)}`);
  }
  const prmbench = prmScoreLine(report.groups, metrics);
  if (prmbench) lines.push(prmbench);
  return [...lines, ...warnings.map((sentence) => `Warning: ${sentence}`)];
}

/**
 * Sentences that sum up the table; they come first. The gain of training on the words comes before the gain of the kept
 * judge.
 */
function readings(report: EvalReport): string[] {
  const { words } = report;
  const found = [
    words && readingOf(`${words.method} by its verdicts alone`, words),
    readingOf(judgeInProse(report), report),
  ].filter((sentence) => sentence !== undefined);
  const last = found.pop();
  const isCompared =
    (report.differences ?? words?.differences) && [...found, last].some((said) => said?.includes(' to '));
  return last === undefined ? [] : [...found, isCompared ? `${last} ${BRACKETS}` : last];
}
