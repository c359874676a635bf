// Detects the three signs of a failed run that our source on StepAMC (arXiv 2503.18432) names, and a fourth: a reward
// network that judges worse than the policy it is to teach.

import { type Standing, standingOf } from '../standing.js';
import type { ConfusionMetrics, VerdictMetrics } from '../statistics/metrics.js';
import { percent } from '../statistics/percent.js';

export interface FailureEvidence {
  /** Metrics of the kept judge. */
  readonly metrics: Pick<VerdictMetrics, 'n' | 'acc_pos' | 'acc_neg' | 'f1_macro' | 'auc'>;
  /** Evidence that the judge weighs with its words. Default: none. */
  readonly evidence?: 'calculations' | 'likelihood' | undefined;
  /** Whether the base is none of the package's small models. */
  readonly pretrained?: boolean | undefined;
  /** Interval of the AUC. */
  readonly aucInterval?: readonly [number, number] | undefined;
  /** Metrics of the trained model's words, where the judge weighs them with other evidence. */
  readonly words?: Pick<ConfusionMetrics, 'f1_macro'> | undefined;
  /** The judged unit; default steps. */
  readonly unit?: 'steps' | 'solutions' | undefined;
  /** Whether training weighs both classes alike already. */
  readonly balanced?: boolean | undefined;
  /** The supervised model that the run started from, on the same steps. */
  readonly sft?: Pick<ConfusionMetrics, 'f1_macro'> | undefined;
  /** The reward network as a judge of the same steps. */
  readonly network?: Pick<ConfusionMetrics, 'f1_macro'> | undefined;
  /** Value losses in the order of training. */
  readonly valueLosses?: readonly number[] | undefined;
}

/** Max difference between the recalls of the two classes without a warning. */
const CLASS_GAP = 0.15;

/** The value loss diverges if its median over the last fifth of the run is this many times that over the first. */
const VALUE_LOSS_GROWTH = 2;

/** Fewer losses show no trend. */
const MIN_LOSSES = 10;

/** One sentence for each sign found in the evidence. */
export function failureSigns(evidence: FailureEvidence): string[] {
  const { metrics, aucInterval, sft, network, valueLosses = [] } = evidence;
  const signs: string[] = [];
  const { f1_macro } = evidence.words ?? metrics;
  const { acc_pos, acc_neg } = metrics;
  const standing = standingOf(metrics, aucInterval, evidence.unit);
  if (standing.only || (standing.auc && standing.auc !== 'above')) {
    signs.push(`${standing.sentence}: ${adviceOf(standing, evidence)}`);
  } else if (metrics.auc !== undefined && Math.abs(acc_pos - acc_neg) > CLASS_GAP) {
    // AUC is absent where only one class was judged; the other class then has no recall.
    const leaning = acc_pos > acc_neg ? 'right' : 'wrong';
    signs.push(
      `Acc_pos ${percent(acc_pos)} and Acc_neg ${percent(acc_neg)} are more than ${percent(CLASS_GAP, 0)} points apart: the ` +
        `verdicts lean to "${leaning}"; ${balancing(leaning, evidence)}`,
    );
  }
  if (sft && f1_macro < sft.f1_macro) {
    signs.push(
      `F1 macro ${percent(f1_macro)} is below the ${percent(sft.f1_macro)} of the SFT model it started from: reinforcement ` +
        'learning made it worse; lower its learning rate or stop earlier',
    );
  }
  const weak = sft && network && weakNetwork(network, sft);
  if (weak) signs.push(weak);
  if (!valueLosses.every(Number.isFinite)) {
    signs.push('the value loss is not finite; lower the learning rate or clip the values');
  } else if (valueLosses.length >= MIN_LOSSES) {
    const fifth = Math.ceil(valueLosses.length / 5);
    const [start, end] = [median(valueLosses.slice(0, fifth)), median(valueLosses.slice(-fifth))];
    if (end > VALUE_LOSS_GROWTH * start) {
      signs.push(
        `the value loss diverges: ${start.toPrecision(3)} at the start of the run, ${end.toPrecision(3)} at its end; ` +
          'lower the learning rate or clip the values',
      );
    }
  }
  return signs;
}

/** Advice; if the probabilities do not separate the classes, neither a threshold nor a balance helps. */
function adviceOf({ auc }: Standing, { evidence, pretrained }: FailureEvidence): string {
  switch (auc) {
    case 'above':
      return 'its probabilities tell right from wrong, so move the threshold (eval_verdicts.threshold, of a reward model eval_scores.threshold)';
    case 'below':
      return `are the ${evidence ? '' : 'verdict words or the '}labels swapped, or did it learn for too few steps?`;
    case 'few':
      return 'judge more held-out steps';
    default:
      return `it hardly tells right from wrong; ${STRONGER[evidence ?? 'words']}${evidence === 'calculations' ? besides(pretrained, 'take') : ''}`;
  }
}

const STRONGER = {
  words: 'take a stronger base, more labelled data or a longer training',
  calculations:
    'few steps write out a calculation that does not come out, such as 12 + 7 = 18, and what they should have computed it cannot know; ',
  likelihood:
    'the base finds wrong steps as likely as right ones; take one that writes such solutions itself',
} as const;

/** The advice on judging steps that calculations do not cover. */
function besides(pretrained: boolean | undefined, how: 'take' | 'tell'): string {
  if (pretrained)
    return how === 'take'
      ? 'give more rows or epochs, so that the verdict words learn it'
      : 'the verdict words may tell those after more rows or epochs';
  return how === 'take'
    ? 'take a pretrained base (model.base)'
    : 'a pretrained base (model.base) may tell those';
}

/**
 * The advice against verdicts that lean to one class. No balance or threshold turns a right calculation into a wrong
 * one.
 */
function balancing(leaning: 'right' | 'wrong', { evidence, balanced, pretrained }: FailureEvidence): string {
  if (evidence === 'calculations')
    return leaning === 'right'
      ? `it misses steps whose calculations come out, or that have none; ${besides(pretrained, 'tell')}`
      : 'look in report.html at right steps that it calls wrong: which calculations does it read otherwise than they are meant?';
  if (evidence === 'likelihood') return 'move the threshold (eval_verdicts.threshold)';
  return `${balanced ? '' : 'balance the classes, '}strengthen the constraint or move the threshold`;
}

/** The sign of a reward network that judges worse than the supervised model it is to teach. */
export function weakNetwork(
  network: Pick<ConfusionMetrics, 'f1_macro'>,
  sft: Pick<ConfusionMetrics, 'f1_macro'>,
): string | undefined {
  if (network.f1_macro >= sft.f1_macro) return undefined;
  return (
    `F1 macro ${percent(network.f1_macro)} of the reward network as a judge is below the ${percent(sft.f1_macro)} of the SFT model ` +
    'that it is to teach: its rewards carry its errors over; train it longer, or take rewards from the labels ' +
    '(ablation.no_reward_network)'
  );
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
