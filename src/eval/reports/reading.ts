// Sentences that sum up a table of judges, made from its numbers.

import { standingIn } from '../standing.js';
import type { VerdictMetrics } from '../statistics/metrics.js';
import type { Differences } from '../statistics/paired.js';
import { formatSigned, percent } from '../statistics/percent.js';
import type { EvalReport } from './eval-report.js';
import { judgeInProse } from './likelihood-report.js';

/** As they are called in prose. */
const NAMES: Readonly<Record<string, string>> = {
  base: 'the base',
  sft: 'its warm-up',
  reward_network: 'the reward network',
  random: 'chance',
  words: 'the verdicts alone',
  likelihood: 'the likelihood alone, which no training made',
  calculations: 'the calculations alone, which no training made',
};

/** Explains the numbers in brackets of {@link readingOf}. */
export const BRACKETS =
  'In brackets: the difference and its 95 % interval, paired over problems. One seed says nothing about others.';

/**
 * A difference counts where its interval leaves out 0.
 *
 * @param metrics of the model on the steps of the differences
 */
export function readingOf(
  method: string,
  metrics: Pick<VerdictMetrics, 'f1_macro'>,
  { steps, n, to }: Differences,
): string[] {
  const entries = Object.entries(to).map(([name, { difference, interval }]) => {
    const ends = interval.map((end) => formatSigned(end, percent)).join(' to ');
    const called = NAMES[name] ?? name;
    // Where no resample differs, the interval is only as wide as so few problems leave it.
    if (difference === 0 && interval[0] === -interval[1]) return { verdict: 'same', text: called };
    const verdict = interval[0] > 0 ? 'above' : interval[1] < 0 ? 'below' : 'apart';
    return { verdict, text: `${called} (${formatSigned(difference, percent)}, ${ends})` };
  });
  const list = (verdict: string) =>
    entries.filter((entry) => entry.verdict === verdict).map(({ text }) => text);
  const parts = [
    ['above', 'better than '],
    ['below', 'worse than '],
    ['apart', 'not told apart from '],
    ['same', 'the same as '],
  ].flatMap(([verdict, words]) => {
    const found = list(verdict as string);
    return found.length > 0 ? [words + joined(found)] : [];
  });
  return [
    `Reading: on the ${n} ${steps === 'unseen' ? 'unseen ' : ''}steps ${method} has F1 macro ${percent(metrics.f1_macro)}: ` +
      `${parts.join('; ')}.`,
  ];
}

/** Sentences on how far the verdicts are above chance, where that is little. */
export function standingReading(
  report: Pick<
    EvalReport,
    'method' | 'unit' | 'metrics' | 'metrics_unseen' | 'intervals' | 'intervals_unseen' | 'likelihood'
  >,
): string[] {
  const { auc, only, sentence, n, isUnseen } = standingIn(report);
  if (auc === undefined || (auc === 'above' && !only)) return [];
  return [
    `Reading: ${judgeInProse(report)} on the ${n} ${isUnseen ? 'unseen ' : ''}${report.unit ?? 'steps'}: ${sentence}.`,
  ];
}

function joined(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
}
