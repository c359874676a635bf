/** The report of an evaluation of corrections: its figures by name, and its table. */
import { plural } from '../../native/shown.js';
import { formatTable } from '../../terminal/table.js';
import { percent } from '../statistics/percent.js';
import type { MetricValue } from './metrics.js';
import type { SolvingReport } from './solving-report.js';

/** Shares from 0 to 1; absent where there is nothing to take a share of. */
export interface OutputMetrics {
  readonly samples: number;
  /** Corrections in all of them. */
  readonly corrections: number;
  /** Samples with a correction. */
  readonly correction_rate: number;
  /** Share of the judged corrections that follow a wrong step. */
  readonly correction_precision?: number | undefined;
  /** Share of the corrections of wrong steps that result in a right one. */
  readonly repair_rate?: number | undefined;
  /** Share of the corrections of right steps that result in a wrong one. */
  readonly harm_rate?: number | undefined;
  /** Share of wrong steps among all that stand; and share of samples with one. */
  readonly wrong_steps?: number | undefined;
  readonly samples_with_wrong_step?: number | undefined;
  /** Standing and abandoned wrong steps by kind; only for generated problems. */
  readonly errors: Readonly<Record<string, number>>;
  readonly abandoned_errors: Readonly<Record<string, number>>;
}

/** Shares from 0 to 1. */
export interface PrefixMetrics {
  readonly prefixes: number;
  /** After a wrong step: share of reflections; of right final answers; of both. */
  readonly trigger_rate: number;
  readonly fix_rate: number;
  readonly triggered_fix_rate: number;
  /** After a wrong step: share with a reflection, and then a step with the right step's result. */
  readonly repair_rate: number;
  /** After a right step: share of reflections, all of them false triggers. */
  readonly false_trigger_rate: number;
  /** The difference of both rates, with its interval over whole problems: only above 0 does a model see errors at all. */
  readonly trigger_difference: MetricValue;
  readonly right_rate: number;
  /** After a right step: share with a false trigger and no later step with its result. */
  readonly spoil_rate: number;
  /** After a right step: share with a false trigger and a wrong final answer. */
  readonly harm_rate: number;
}

/** `corrections` in the eval.json of a run. */
export interface CorrectionReport {
  readonly greedy: SolvingReport;
  readonly greedy_corrections: OutputMetrics;
  readonly sampled?: SolvingReport;
  readonly sampled_corrections?: OutputMetrics;
  /** Metrics after held-out wrong and right steps; absent where none were given. */
  readonly prefixes?: PrefixMetrics;
  readonly judge?: string;
  /** Greedy pass@1 on validation problems, where they were given; hyperparameters are chosen by it. */
  readonly 'validation_pass@1'?: number;
}

/** The numbers of a report that go into metrics.jsonl. */
export function shortCorrectionMetrics({
  greedy,
  greedy_corrections: own,
  sampled,
  prefixes,
  ...report
}: CorrectionReport): Record<string, number> {
  const votes = Object.entries(sampled?.metrics ?? {}).filter(([name]) => name.startsWith('maj@'));
  const all: Record<string, number | undefined> = {
    'pass@1': greedy.metrics['pass@1']?.value,
    'validation_pass@1': report['validation_pass@1'],
    ...Object.fromEntries(votes.map(([name, { value }]) => [name, value])),
    tokens_a_solution: greedy.metrics.tokens?.value,
    correction_rate: own.correction_rate,
    correction_precision: own.correction_precision,
    wrong_steps: own.wrong_steps,
    trigger_rate: prefixes?.trigger_rate,
    fix_rate: prefixes?.fix_rate,
    repair_rate: prefixes?.repair_rate,
    false_trigger_rate: prefixes?.false_trigger_rate,
    trigger_difference: prefixes?.trigger_difference.value,
    spoil_rate: prefixes?.spoil_rate,
    harm_rate: prefixes?.harm_rate,
  };
  return Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

/** The metrics of eval.json: those of solving, as any method has them, and those of corrections. */
export function correctionMetrics(report: CorrectionReport): Record<string, number> {
  const {
    wrong_steps: standing,
    'validation_pass@1': _,
    tokens_a_solution: __,
    ...own
  } = shortCorrectionMetrics(report);
  const solving = Object.entries(solvedCorrections(report)).map(
    ([name, { value }]) => [name, value] as const,
  );
  return {
    ...own,
    ...Object.fromEntries(solving),
    ...(standing === undefined ? {} : { standing_wrong_steps: standing }),
  };
}

/** Metrics of the greedy solutions, then `sampled pass@1` and votes of the samples. */
export function solvedCorrections({ greedy, sampled }: CorrectionReport): Record<string, MetricValue> {
  const { 'pass@1': pass, ...samples } = sampled?.metrics ?? {};
  const votes = Object.entries(samples).filter(([name]) => name.startsWith('maj@'));
  return { ...greedy.metrics, ...(pass ? { 'sampled pass@1': pass } : {}), ...Object.fromEntries(votes) };
}

/** The cell for a share of nothing, and for a metric that the column does not have. */
const NONE = '–';

function withInterval(metric: MetricValue | undefined): string {
  if (metric === undefined) return NONE;
  const { value, interval } = metric;
  if (interval === undefined) return percent(value);
  return `${percent(value)} (${interval.map((end) => percent(end)).join(' to ')})`;
}

/** The tables of a report, framed where they are `boxed`. */
export function formatCorrectionReport(report: CorrectionReport, { boxed = false } = {}): string {
  const tables = correctionTables(report).map((rows) => formatTable(rows, { boxed }));
  return [...tables, ...correctionNotes(report)].join('\n');
}

/** Tables as cells, none of them empty: for solutions and, where there were held-out steps, for the text after them. */
export function correctionTables({
  greedy,
  greedy_corrections: one,
  sampled,
  sampled_corrections: many,
  prefixes,
}: CorrectionReport): string[][][] {
  const columns = [{ of: greedy, own: one }, ...(sampled ? [{ of: sampled, own: many }] : [])];
  const vote = Object.keys(sampled?.metrics ?? {}).find((name) => name.startsWith('maj@'));
  const shown = (number: number | undefined, as: (found: number) => string = percent) =>
    number === undefined ? NONE : as(number);
  const fixed = (number: number) => number.toFixed(1);
  const row = (title: string, pick: (of: OutputMetrics) => number | undefined) => [
    title,
    ...columns.map(({ own }) => shown(own && pick(own))),
  ];
  const solved = [
    [`${plural(greedy.problems, 'problem')}, %`, 'greedy', ...(sampled ? [plural(sampled.n, 'sample')] : [])],
    [
      'pass@1',
      withInterval(greedy.metrics['pass@1']),
      ...(sampled ? [shown(sampled.metrics['pass@1']?.value)] : []),
    ],
    ...(vote ? [[vote, NONE, shown(sampled?.metrics[vote]?.value)]] : []),
    ['tokens a sample', ...columns.map(({ of }) => shown(of.metrics.tokens?.value, fixed))],
    row('with a correction', ({ correction_rate }) => correction_rate),
    row('corrections of wrong steps', ({ correction_precision }) => correction_precision),
    row('of these, into right ones', ({ repair_rate }) => repair_rate),
    row('of right steps, into wrong ones', ({ harm_rate }) => harm_rate),
    row('wrong among the steps that stand', ({ wrong_steps }) => wrong_steps),
  ];
  if (!prefixes) return [solved];
  return [
    solved,
    [
      [`after ${prefixes.prefixes} held-out steps, %`, 'wrong', 'right'],
      ['reflects', percent(prefixes.trigger_rate), percent(prefixes.false_trigger_rate)],
      [
        'reflects, not the right step then',
        percent(Math.max(0, prefixes.trigger_rate - prefixes.repair_rate)),
        percent(prefixes.spoil_rate),
      ],
      ['right final answer', percent(prefixes.fix_rate), percent(prefixes.right_rate)],
      [
        'reflects, wrong final answer',
        percent(Math.max(0, prefixes.trigger_rate - prefixes.triggered_fix_rate)),
        percent(prefixes.harm_rate),
      ],
    ],
  ];
}

/** Notes below the tables: whether errors can be seen at all, errors by kind, and the judge. */
export function correctionNotes(report: CorrectionReport): string[] {
  const { greedy_corrections: one, sampled_corrections: many, prefixes, judge } = report;
  const kinds = (title: string, of: OutputMetrics) => {
    const sorted = Object.entries(of.errors).sort(([, a], [, b]) => b - a);
    return sorted.length === 0 ? [] : [`${title}: ${sorted.map(([kind, n]) => `${kind} ${n}`).join(', ')}`];
  };
  return [
    ...(prefixes
      ? [
          `reflects after wrong steps more often than after right ones by ${withInterval(prefixes.trigger_difference)}`,
        ]
      : []),
    ...kinds('errors that stand, greedy', one),
    ...(many ? kinds('errors that stand, sampled', many) : []),
    ...(judge ? [`steps judged by ${judge}`] : []),
  ];
}
