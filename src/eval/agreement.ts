/** Agreement of a step judge with known labels, measured before anything learns from its labels. */

import { grouped } from '../native/grouped.js';
import { plural } from '../native/shown.js';
import { normalizeProblem, type StepRecord } from '../records/record.js';
import { readableStep } from '../records/turns.js';
import { type Scorer, type Solution, sampled, verdictsOf } from '../scoring/scorer.js';
import { plainTable } from './reports/table.js';
import { type MetricValue, metricValues } from './solving/metrics.js';
import { BOOTSTRAP, bootstrapIntervals } from './statistics/bootstrap.js';
import { confusionMetrics, countConfusion } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';
import {
  firstWrongLabel,
  firstWrongVerdict,
  formatProcessBench,
  type KnownProcessBenchScore,
  knownScore,
} from './statistics/solutions.js';

/** The measures of agreement between verdicts and known labels. */
export type AgreementMetric = 'accuracy' | 'balanced_accuracy' | 'f1_macro' | 'acc_pos' | 'acc_neg';
const METRICS: readonly AgreementMetric[] = [
  'accuracy',
  'balanced_accuracy',
  'f1_macro',
  'acc_pos',
  'acc_neg',
];

/** Shares as fractions, with central 95 % of the bootstrap over problems where there are two or more. */
export interface JudgeAgreement {
  readonly judge: string;
  readonly solutions: number;
  /** Steps whose label is known. */
  readonly steps: number;
  /** Share of these steps that the judge gave no verdict on. */
  readonly unlabelled: MetricValue;
  /**
   * Measures on the steps with a verdict: accuracy, balanced accuracy, macro F1, recall of right steps (`acc_pos`) and
   * of wrong ones (`acc_neg`).
   */
  readonly metrics: Readonly<Record<AgreementMetric, MetricValue>>;
  /** The first wrong step of each solution whose labels tell it; absent where none does. */
  readonly processbench?: KnownProcessBenchScore;
  /** The judge's own counts, such as requests, tokens and cost. */
  readonly cost?: Readonly<Record<string, number>>;
}

export interface AgreementOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (done: number) => void;
}

/** Solutions at a time; those of a batch are asked at once, as far as the judge allows. */
const BATCH = 64;

/**
 * @param records solutions with labels, as `loadRecords` reads them; the judge sees their texts and, where they have them, the
 *   reference solution and answer
 * @throws what the judge throws; the signal's reason where it was aborted
 */
export async function judgeAgreement(
  judge: Scorer,
  records: readonly StepRecord[],
  { signal, onProgress }: AgreementOptions = {},
): Promise<JudgeAgreement> {
  const judged = verdictsOf(judge);
  const verdicts: (readonly (0 | 1 | null)[])[] = [];
  for (let at = 0; at < records.length; at += BATCH) {
    const batch = records.slice(at, at + BATCH).map((record, i) => recordSolution(record, at + i));
    verdicts.push(...(await judged(batch, signal)));
    signal?.throwIfAborted();
    onProgress?.(verdicts.length);
  }
  const all = records.flatMap(({ problem, steps }, i) =>
    steps.flatMap(({ label }, s) =>
      label === null
        ? []
        : [
            {
              problem: normalizeProblem(problem),
              label,
              verdict: verdicts[i]?.[s] ?? undefined,
              probability: 0,
            },
          ],
    ),
  );
  const labelled = { invalidAsWrong: false };
  const values = confusionMetrics(countConfusion(all, labelled).confusion);
  const intervals = bootstrapIntervals(all, { ...BOOTSTRAP, ...labelled })?.metrics;
  const metric = (name: AgreementMetric): MetricValue => {
    const interval = intervals?.[name];
    return { value: values[name], ...(interval ? { interval } : {}) };
  };
  const cases = records.flatMap(({ steps }, i) => {
    const label = firstWrongLabel(steps.map((step) => step.label));
    const own = steps.flatMap((step, s) =>
      step.label === null ? [] : [{ step: s, verdict: verdicts[i]?.[s] ?? undefined }],
    );
    return label === undefined ? [] : [{ label, prediction: firstWrongVerdict(own, own.length) }];
  });
  const cost = judge.report?.();
  return {
    judge: judge.name,
    solutions: records.length,
    steps: all.length,
    unlabelled: share(all),
    metrics: Object.fromEntries(METRICS.map((name) => [name, metric(name)])) as JudgeAgreement['metrics'],
    ...(cases.length > 0 ? { processbench: knownScore(cases) } : {}),
    ...(cost ? { cost } : {}),
  };
}

export function recordSolution(record: StepRecord, index: number): Solution {
  const { problem, steps, gold_answer, gold_solution } = record;
  const texts = steps.map(readableStep);
  const of = {
    problem,
    answer: gold_answer ?? '',
    ...(gold_solution === undefined ? {} : { solution: gold_solution }),
  };
  const solution = sampled(of, { problem: index, sample: 0, text: texts.join('\n') }, texts);
  return record.turns ? { ...solution, turns: record } : solution;
}

/** Share of steps without a verdict, with problems as the unit of the bootstrap. */
function share(
  steps: readonly { readonly problem: string; readonly verdict: 0 | 1 | undefined }[],
): MetricValue {
  const own = [...grouped(steps, ({ problem }) => problem).values()];
  const missing = own.map((of) => of.filter(({ verdict }) => verdict === undefined).length);
  const sums = { sums: missing, counts: own.map(({ length }) => length) };
  return metricValues(new Map([['unlabelled', sums]])).unlabelled as MetricValue;
}

/** A table of the figures, and a line on their cost. */
export function formatAgreement({
  judge,
  solutions,
  steps,
  unlabelled,
  metrics,
  processbench,
  cost,
}: JudgeAgreement): string {
  const row = (title: string, { value, interval }: MetricValue) => [
    title,
    percent(value),
    interval ? interval.map((end) => percent(end)).join('-') : '',
  ];
  const table = plainTable([
    [`${plural(solutions, 'solution')}, ${plural(steps, 'labelled step')}`, '%', '95 % CI'],
    row('agrees with the label', metrics.accuracy),
    row('balanced accuracy', metrics.balanced_accuracy),
    row('F1 macro', metrics.f1_macro),
    row('right steps recognised', metrics.acc_pos),
    row('wrong steps recognised', metrics.acc_neg),
    row('steps without a label of the judge', unlabelled),
  ]);
  const spent = Object.entries(cost ?? {}).map(([name, value]) => `${name} ${Number(value.toFixed(4))}`);
  return [
    table,
    ...(processbench ? [`ProcessBench F1: ${formatProcessBench(processbench)}`] : []),
    `judge: ${judge}; steps that it gave no label are left out of all rows but the last`,
    ...(spent.length > 0 ? [spent.join(', ')] : []),
  ].join('\n');
}
