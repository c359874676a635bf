// Whether a judge of steps tells right from wrong at all.
import type { VerdictMetrics } from './metrics.js';
import { percent } from './percent.js';

/** An AUC below it is hardly above chance, however many steps say so. */
const HARDLY = 0.6;

/** Without an interval, what is so near to one half counts as chance. */
const NEAR = 0.05;

export type AucStanding = 'above' | 'hardly' | 'chance' | 'below';

export interface Standing {
  /** Of the AUC, by its interval where there is one; absent where one class alone was judged. */
  readonly auc?: AucStanding;
  /** What every answer says, where right and wrong steps were judged and all got the same verdict. */
  readonly only?: 'right' | 'wrong';
  /** Empty where there is nothing to say. */
  readonly sentence: string;
}

const WORDS: Readonly<Record<AucStanding, string>> = {
  above: 'is above chance',
  hardly: 'is hardly above chance',
  chance: 'is chance',
  below: 'is below chance',
};

/**
 * @param interval of the AUC
 * @param unit what is judged
 */
export function standingOf(
  { acc_pos, acc_neg, auc }: Pick<VerdictMetrics, 'acc_pos' | 'acc_neg' | 'auc'>,
  interval?: readonly [number, number],
  unit: 'steps' | 'solutions' = 'steps',
): Standing {
  // Without an AUC one class alone was judged: the other's recall is 0/0.
  if (auc === undefined) return { sentence: '' };
  const standing = aucStanding(auc, interval ?? [auc - NEAR, auc + NEAR]);
  const only =
    acc_pos === 1 && acc_neg === 0 ? 'right' : acc_pos === 0 && acc_neg === 1 ? 'wrong' : undefined;
  const ends = interval ? ` (${interval.map((end) => percent(end)).join(' to ')})` : '';
  const parts = [
    ...(only ? [`it answers "${only}" to every ${unit === 'steps' ? 'step' : 'solution'}`] : []),
    `AUC ${percent(auc)}${ends} ${WORDS[standing]}`,
  ];
  return { auc: standing, ...(only ? { only } : {}), sentence: parts.join('; ') };
}

function aucStanding(auc: number, [low, high]: readonly [number, number]): AucStanding {
  if (low <= 0.5 && high >= 0.5) return 'chance';
  if (auc < 0.5) return 'below';
  return auc < HARDLY ? 'hardly' : 'above';
}
