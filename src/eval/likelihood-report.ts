/** What the likelihood of the base adds to verdicts: the same steps judged by the words, by the likelihood, and by both. */
import type { SeenSteps } from '../data/overlap.js';
import type { StepRecord } from '../records/record.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import type { VerdictMetrics } from './metrics.js';
import type { Differences } from './paired.js';
import { percent } from './percent.js';
import { metricsByError, type StepErrors } from './step-errors.js';

export interface LikelihoodReport {
  /** Fitted on validation steps. */
  readonly weights: LikelihoodWeights;
  /** Words and likelihood together: the judge that the adapter is kept as. */
  readonly both: LikelihoodJudge;
  /** Set where not even the steps that the weights were fitted on are told apart: the adapter judges by its words alone. */
  readonly kept?: false;
  /** The likelihood alone, with weights of its own: what the base knows without training. */
  readonly alone?: LikelihoodJudge;
  /** Of both less the `words`, and less the `likelihood` alone. */
  readonly differences?: Differences;
}

export interface LikelihoodJudge {
  readonly metrics: VerdictMetrics;
  readonly metrics_unseen?: VerdictMetrics;
  readonly errors?: StepErrors;
  /** 95 %, over problems; of the unseen steps where there are some. */
  readonly auc_interval?: readonly [number, number];
}

export function likelihoodJudge(
  judged: readonly JudgedVerdict[],
  {
    records,
    seen,
    metricsOf,
    intervalOf,
  }: {
    readonly records: readonly Pick<StepRecord, 'steps'>[];
    readonly seen?: SeenSteps | undefined;
    readonly metricsOf: (judged: readonly JudgedVerdict[]) => VerdictMetrics;
    readonly intervalOf: (judged: readonly JudgedVerdict[]) => readonly [number, number] | undefined;
  },
): LikelihoodJudge {
  const unseen = seen ? judged.filter((verdict) => !seen(verdict)) : [];
  const errors = metricsByError(judged, records, seen);
  const interval = intervalOf(unseen.length > 0 ? unseen : judged);
  return {
    metrics: metricsOf(judged),
    ...(unseen.length > 0 ? { metrics_unseen: metricsOf(unseen) } : {}),
    ...(errors ? { errors } : {}),
    ...(interval ? { auc_interval: interval } : {}),
  };
}

const ROWS = [
  ['acc_pos', 'Acc_pos'],
  ['acc_neg', 'Acc_neg'],
  ['f1_macro', 'F1 macro'],
  ['auc', 'AUC'],
] as const;

/** What stands beside the words, as tables call it. */
export const evidenceOf = ({ of }: Pick<LikelihoodWeights, 'of'>) => of ?? 'likelihood';

/** A row for each metric; the first has the titles. Of the unseen steps where there are some. Empty without such judges. */
export function likelihoodRows({
  metrics: all,
  metrics_unseen: unseen,
  likelihood,
  unit = 'steps',
}: {
  readonly metrics: VerdictMetrics;
  readonly metrics_unseen?: VerdictMetrics;
  readonly likelihood?: LikelihoodReport;
  readonly unit?: 'steps' | 'solutions';
}): string[][] {
  if (!likelihood) return [];
  const of = (judge: LikelihoodJudge) => (unseen ? judge.metrics_unseen : undefined) ?? judge.metrics;
  const words = unseen ?? all;
  const judges = [
    ['words', words],
    ...(likelihood.alone ? [[evidenceOf(likelihood.weights), of(likelihood.alone)] as const] : []),
    ['both', of(likelihood.both)],
  ] as const;
  return [
    [`${words.n}${unseen ? ' unseen' : ''} ${unit}, %`, ...judges.map(([name]) => name)],
    ...ROWS.map(([key, title]) => [
      title,
      ...judges.map(([, { [key]: value }]) => (value === undefined ? '–' : percent(value))),
    ]),
  ];
}

/** What `both` is made of. */
export function likelihoodNote({ likelihood }: { readonly likelihood?: LikelihoodReport }): string[] {
  if (!likelihood) return [];
  const evidence = evidenceOf(likelihood.weights);
  const together = `words and ${evidence} together`;
  if (likelihood.kept === false)
    return [
      `both: ${together}; not kept, since they do not tell right from wrong among the steps that their weights were fitted on: the ` +
        'adapter judges by its words alone',
    ];
  const { of, constant, verdict, least, before } = likelihood.weights;
  const signed = (value: number) => `${value < 0 ? '−' : '+'} ${Math.abs(value).toFixed(2)}`;
  const ofEvidence =
    of === 'calculations'
      ? ` ${signed(-least)} where a calculation of the step is wrong ${signed(-before)} where one before it is`
      : ` ${signed(least)} × least log-probability of a token up to the end of the step, under the base without its adapter ` +
        `${signed(before)} × the same up to its start`;
  return [
    `both: ${verdict === 0 ? `the ${evidence} alone, for want of words that learned something` : together}, the judge that the ` +
      `adapter is kept as. Log-odds of a right step = ${constant.toFixed(2).replace('-', '−')}` +
      (verdict === 0 ? '' : ` ${signed(verdict)} × log-odds of the words`) +
      `${ofEvidence}; fitted on validation ${verdict === 0 ? 'and training ' : ''}steps`,
  ];
}
