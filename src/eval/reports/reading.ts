// Sentences that sum up a table of judges, made from its numbers.

import { plural } from '../../native/shown.js';
import { standingIn } from '../standing.js';
import { needsOtherClass } from '../statistics/metrics.js';
import type { Differences } from '../statistics/paired.js';
import { formatSigned, percent } from '../statistics/percent.js';
import type { VerdictReport } from './eval-report.js';

/** Names in prose. */
const NAMES: Readonly<Record<string, string>> = {
  base: 'the base',
  sft: 'its warm-up',
  reward_network: 'the reward network',
  random: 'chance',
  words: 'the verdicts alone',
  likelihood: 'the likelihood alone, which this run did not train',
  calculations: 'the calculations alone, which no training made',
};

/** Explains the numbers in brackets of {@link readingOf}. */
export const BRACKETS =
  'In brackets: the difference and its 95 % interval, paired over problems. One seed says nothing about others.';

/** With fewer problems no test of signs gets below 5 %: all of five on one side are 2 × 2^−5 = 6.25 %. */
export const MIN_PROBLEMS = 6;

/** Whether steps were judged and none of the verdicts can be read. */
export const isMute = ({ n, invalid }: { readonly n?: number; readonly invalid?: number } = {}): boolean =>
  n !== undefined && n > 0 && n === invalid;

type Read = Pick<
  VerdictReport,
  | 'unit'
  | 'metrics'
  | 'metrics_unseen'
  | 'intervals'
  | 'intervals_unseen'
  | 'differences'
  | 'baselines'
  | 'baselines_unseen'
>;

/**
 * One sentence on how a judge compares to others, and to chance; undefined where there is nothing to say. A difference
 * counts where its interval leaves out 0 and there are problems enough. Chance is left to the AUC wherever that is not
 * above it, so that no second measure says otherwise.
 */
export function readingOf(judge: string, report: Read): string | undefined {
  const { auc, only, sentence, n, isUnseen } = standingIn(report);
  const isAbove = auc === undefined || auc === 'above';
  const standing = isAbove && !only ? [] : [sentence];
  const unit = report.unit ?? 'steps';
  const { differences } = report;
  if (!differences) {
    const [said] = standing;
    return said && `Reading: ${judge} on the ${n} ${isUnseen ? 'unseen ' : ''}${unit}: ${said}.`;
  }
  const rivals = Object.entries(differences.to).filter(([name]) => isAbove || name !== 'random');
  const problems = (report.intervals_unseen ?? report.intervals)?.problems ?? MIN_PROBLEMS;
  const { f1_macro } = report.metrics_unseen ?? report.metrics;
  const others = (differences.steps === 'unseen' ? report.baselines_unseen : undefined) ?? report.baselines;
  const mute = rivals.map(([name]) => name).filter((name) => isMute(others[name]));
  const heard = rivals.filter(([name]) => !mute.includes(name));
  const compared = heard.some(([name]) => name !== 'random') ? heard : rivals;
  const of = `${differences.n} ${differences.steps === 'unseen' ? 'unseen ' : ''}${unit}`;
  const { always_positive } = others;
  if (always_positive && needsOtherClass('f1_macro', always_positive))
    return `Reading: all of the ${of} are ${always_positive.accuracy === 1 ? 'right' : 'wrong'}, so that they cannot tell whether ${judge} is better than others or chance.`;
  const place = `on the ${of}`;
  return (
    `Reading: ${place} ${judge} has F1 macro ${percent(f1_macro)}: ` +
    `${[...comparisons(compared, problems, mute), ...standing].join('; ')}.`
  );
}

/**
 * Phrases on what a judge is better than, worse than, not told apart from, and the same as. The difference to one that is `mute`,
 * none of whose verdicts can be read, would be the judge's own F1.
 */
function comparisons(
  rivals: [string, Differences['to'][string]][],
  problems: number,
  mute: readonly string[],
): string[] {
  const areFew = problems < MIN_PROBLEMS;
  const entries = rivals.map(([name, { difference, interval }]) => {
    const ends = interval.map((end) => formatSigned(end, percent)).join(' to ');
    const called = NAMES[name] ?? name;
    // If no resample differs, the interval has only the width of Wilson's interval for so few problems.
    if (difference === 0 && interval[0] === -interval[1]) return { verdict: 'same', text: called };
    const verdict = areFew ? 'apart' : interval[0] > 0 ? 'above' : interval[1] < 0 ? 'below' : 'apart';
    if (mute.includes(name)) return { verdict, text: `${called} (which writes no verdict)` };
    return { verdict, text: `${called} (${formatSigned(difference, percent)}, ${ends})` };
  });
  const phrases = {
    above: 'better than ',
    below: 'worse than ',
    apart: areFew ? `${plural(problems, 'problem')} are too few to tell it from ` : 'not told apart from ',
    same: 'the same as ',
  };
  return Object.entries(phrases).flatMap(([verdict, words]) => {
    const found = entries.filter((entry) => entry.verdict === verdict).map(({ text }) => text);
    return found.length > 0 ? [words + joined(found)] : [];
  });
}

function joined(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
}
