/**
 * The reward network as a judge of held-out steps: by the verdict that it scores higher or, with `pair_mode: step`, by a
 * threshold on the score of the step, which is chosen on validation steps because the zero of such scores is arbitrary.
 */

import { indices } from '../../../data/dataset.js';
import { verdictMetrics } from '../../../eval/evaluate-verdicts.js';
import type { NetworkReport } from '../../../eval/reports/eval-report.js';
import { calibration } from '../../../eval/statistics/calibration.js';
import { ratio } from '../../../eval/statistics/metrics.js';
import { bestThreshold } from '../../../eval/statistics/thresholds.js';
import { log, square } from '../../../native/elementary.js';
import { scoreVerdicts, type VerdictScores } from '../../../scoring/reward-network/scores.js';
import { type JudgedVerdict, probability, verdictOfOdds } from '../../../scoring/verdict/judged.js';
import { mean } from '../../../train/policy/metrics.js';
import type { HeldOut } from '../../../train/verdicts/evaluation.js';
import type { StepAmcRun } from '../run.js';
import { comparePairs } from './compare.js';
import { rewardData } from './data.js';
import type { RewardUnit } from './pairs.js';
import { heldOutReasons, readsReasons, reasonedUnits } from './reasons.js';

export interface JudgedByNetwork {
  readonly judged: readonly JudgedVerdict[];
  readonly report: NetworkReport;
  /** The pairs of the part, with the reasons that were read. */
  readonly units: readonly RewardUnit[];
  /** The scale by which the steps were judged, with `pair_mode: step`. */
  readonly scale?: StepScale | undefined;
}

/**
 * Judges a held-out part by the network's present parameters; undefined if the signal stopped it.
 *
 * @param scale with `pair_mode: step`, that of the validation part; absent: chosen on the part itself
 */
export async function judgeByNetwork(
  open: StepAmcRun,
  part: HeldOut,
  signal: AbortSignal,
  scale?: StepScale,
): Promise<JudgedByNetwork | undefined> {
  const { config, data, roles } = open;
  const microBatchTokens = open.microBatchTokens('reward_network');
  const network = rewardData(open, part);
  const mode = config.reward_network.pair_mode;
  const reasons = readsReasons(open) ? await heldOutReasons(open, part, signal) : undefined;
  if (readsReasons(open) && !reasons) return undefined;
  const units = reasons ? reasonedUnits(open, Array.from(data.sequences[part]), reasons) : network.all;
  const sequences = reasons ? units.flatMap((unit) => unit.sequences) : network.sequences;
  const scores = await scoreVerdicts(roles, sequences, { mode, microBatchTokens, signal });
  if (!scores) return undefined;
  const scored = indices(data.sequences[part]).flatMap((solution) =>
    data.sequences[part].get(solution).verdicts.flatMap(({ step, label }, place) => {
      const found = scores[solution]?.[place];
      return label === null || !found ? [] : [{ solution, step, label, found }];
    }),
  );
  const chosen =
    mode === 'step'
      ? (scale ?? stepScale(scored.map(({ label, found }) => ({ label, score: found.positive }))))
      : undefined;
  const judged = scored.map(
    ({ solution, step, label, found }): JudgedVerdict => ({
      ...{ solution, step, label },
      // In `step` mode the number is no probability: it only orders the steps.
      ...verdictOf(chosen ? (found.positive - chosen.threshold) / chosen.deviation : leadOf(found)),
    }),
  );
  const pairs = units.reduce((sum, unit) => sum + unit.pairs.length, 0);
  const inOrder = ({ label, probability }: JudgedVerdict) =>
    label === 1 ? probability > 0.5 : probability < 0.5;
  // In `label` mode a pair is the two verdicts on one step, whose scores are known already.
  const pairAccuracy =
    mode === 'label' || pairs === 0
      ? ratio(judged.filter(inOrder).length, judged.length)
      : (await comparePairs(roles, units, { settings: config.reward_network, microBatchTokens })).metrics
          .pair_accuracy;
  const calibrated = chosen ? undefined : calibration(judged);
  return {
    judged,
    units,
    report: {
      metrics: verdictMetrics(judged, { invalidAsWrong: config.eval_verdicts.invalid_as_wrong }),
      pair_accuracy: pairAccuracy,
      ...(chosen ? { threshold: chosen.threshold } : {}),
      ...(calibrated ? { calibration: calibrated } : {}),
    },
    scale: chosen,
  };
}

/** The score from which a step is right, and the deviation of scores. */
export interface StepScale {
  readonly threshold: number;
  readonly deviation: number;
}

/** The threshold with the best macro F1 on these steps. */
export function stepScale(steps: readonly { readonly label: 1 | 0; readonly score: number }[]): StepScale {
  if (steps.length === 0) return { threshold: 0, deviation: 1 };
  const center = mean(steps.map(({ score }) => score));
  const deviation = Math.sqrt(mean(steps.map(({ score }) => square(score - center)))) || 1;
  // Thresholds are chosen among probabilities; in units of the deviation no score is rounded to 0 or 1.
  const probabilities = steps.map(({ label, score }) => ({
    label,
    probability: probability((score - center) / deviation),
  }));
  const { threshold } = bestThreshold(probabilities, 'f1_macro');
  return { threshold: center + deviation * log(threshold / (1 - threshold)), deviation };
}

/** The pairwise loss makes σ of the difference the probability that "right" is the right verdict. */
function leadOf({ positive, negative }: VerdictScores): number {
  return positive - negative;
}

/** Scores that are equal prefer neither. */
const verdictOf = (lead: number) => ({ ...verdictOfOdds(lead), verdict: lead > 0 ? 1 : 0 }) as const;
