// Whether a judge of steps tells right from wrong at all.

import type { EvalReport } from './reports/eval-report.js';
import type { VerdictMetrics } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';

/** An AUC below it is hardly above chance, for any number of steps. */
const HARDLY = 0.6;

/**
 * Distance of the AUC of n steps from one half that chance alone stays within in 95 of 100 cases (Mann and Whitney's
 * deviation for classes of equal size; unequal ones reach farther). The bootstrap of a handful of problems gives too
 * narrow an interval.
 */
const byChance = (n: number) => 1.96 * Math.sqrt((n + 1) / (3 * n * n));

/** `few`: far from one half, and chance alone reaches as far on so few steps, or so few problems. */
type AucStanding = 'above' | 'hardly' | 'chance' | 'few' | 'below';

export interface Standing {
  /** Standing of the AUC, by its interval where there is one; absent where only one class was judged. */
  readonly auc?: AucStanding;
  /** The only verdict given, where right and wrong steps were judged and all got the same one. */
  readonly only?: 'right' | 'wrong';
  /** Empty where there is nothing to say. */
  readonly sentence: string;
}

const WORDS: Readonly<Record<AucStanding, string>> = {
  above: 'is above chance',
  hardly: 'is hardly above chance',
  chance: 'is not told apart from chance',
  few: 'may be chance: these are too few to tell',
  below: 'is below chance',
};

/**
 * @param interval of the AUC
 * @param unit what is judged
 */
export function standingOf(
  { n, acc_pos, acc_neg, auc }: Pick<VerdictMetrics, 'n' | 'acc_pos' | 'acc_neg' | 'auc'>,
  interval?: readonly [number, number],
  unit: 'steps' | 'solutions' = 'steps',
): Standing {
  // AUC is absent where only one class was judged: the other class's recall is 0/0.
  if (auc === undefined) return { sentence: '' };
  const standing = aucStanding(auc, interval, byChance(n));
  const only =
    acc_pos === 1 && acc_neg === 0 ? 'right' : acc_pos === 0 && acc_neg === 1 ? 'wrong' : undefined;
  const ends = interval ? ` (${interval.map((end) => percent(end)).join(' to ')})` : '';
  const reach = standing === 'few' || standing === 'chance' ? reachOf({ n, unit, interval }) : '';
  const parts = [
    ...(only ? [`it answers "${only}" to every ${unit === 'steps' ? 'step' : 'solution'}`] : []),
    `AUC ${percent(auc)}${ends} ${WORDS[standing]}${reach}`,
  ];
  return { auc: standing, ...(only ? { only } : {}), sentence: parts.join('; ') };
}

/** Standing of the judge of a report, on the unseen steps where there are some. */
export function standingIn({
  unit,
  ...report
}: Pick<EvalReport, 'unit' | 'metrics' | 'metrics_unseen' | 'intervals' | 'intervals_unseen'>): Standing & {
  readonly n: number;
  readonly isUnseen: boolean;
} {
  const isUnseen = report.metrics_unseen !== undefined && report.metrics_unseen.n < report.metrics.n;
  const metrics = (isUnseen ? report.metrics_unseen : undefined) ?? report.metrics;
  const intervals = isUnseen ? report.intervals_unseen : report.intervals;
  return { ...standingOf(metrics, intervals?.metrics.auc, unit), n: metrics.n, isUnseen };
}

/** Says why chance is not left out though the interval leaves one half out; empty where it does not. */
function reachOf({
  n,
  unit,
  interval,
}: {
  readonly n: number;
  readonly unit: 'steps' | 'solutions';
  readonly interval: readonly [number, number] | undefined;
}): string {
  if (interval === undefined || holdsHalf(interval)) return '';
  const far = Math.min(0.5, byChance(n));
  return ` (${n} ${unit} have ${percent(0.5 - far)} to ${percent(0.5 + far)} by chance alone; their interval is too narrow)`;
}

const holdsHalf = ([low, high]: readonly [number, number]): boolean => low <= 0.5 && high >= 0.5;

function aucStanding(
  auc: number,
  interval: readonly [number, number] | undefined,
  near: number,
): AucStanding {
  const apart = Math.abs(auc - 0.5);
  const within = interval !== undefined && holdsHalf(interval);
  if (apart <= near || within) return apart > HARDLY - 0.5 ? 'few' : 'chance';
  if (auc < 0.5) return 'below';
  return auc < HARDLY ? 'hardly' : 'above';
}
