/** The reward network as a judge: the verdict that it scores higher, on held-out steps. */
import { indices } from '../../../data/dataset.js';
import { calibration } from '../../../eval/calibration.js';
import { verdictMetrics } from '../../../eval/evaluate.js';
import { ratio } from '../../../eval/metrics.js';
import type { NetworkReport } from '../../../eval/report.js';
import type { JudgedVerdict } from '../../../eval/verdicts.js';
import type { HeldOut } from '../../../train/evaluation.js';
import type { StepAmcRun } from '../method.js';
import { rewardData } from './data.js';
import { scoreVerdicts } from './score.js';
import { comparePairs } from './stage.js';

export interface JudgedByNetwork {
  readonly judged: readonly JudgedVerdict[];
  readonly report: NetworkReport;
}

/** Judges a held-out part by the network's present parameters; undefined if the signal stopped it. */
export async function judgeByNetwork(
  open: StepAmcRun,
  part: HeldOut,
  signal: AbortSignal,
): Promise<JudgedByNetwork | undefined> {
  const { config, data, roles } = open;
  const microBatchTokens = open.microBatchTokens('frn');
  const network = rewardData(open, part);
  const mode = config.frn.pair_mode;
  const scores = await scoreVerdicts(roles, network.sequences, { mode, microBatchTokens, signal });
  if (!scores) return undefined;
  const judged = indices(data.sequences[part]).flatMap((solution) =>
    data.sequences[part].get(solution).verdicts.flatMap(({ step, label }, place): JudgedVerdict[] => {
      const found = scores[solution]?.[place];
      return label === null || !found ? [] : [{ solution, step, label, ...verdictOf(found) }];
    }),
  );
  const pairs = network.all.reduce((sum, unit) => sum + unit.pairs.length, 0);
  const inOrder = ({ label, probability }: JudgedVerdict) =>
    label === 1 ? probability > 0.5 : probability < 0.5;
  // In `label` mode a pair is the two verdicts on one step, whose scores are known already.
  const pairAccuracy =
    mode === 'label' || pairs === 0
      ? ratio(judged.filter(inOrder).length, judged.length)
      : (await comparePairs(roles, network.all, { settings: config.frn, microBatchTokens })).metrics
          .pair_accuracy;
  const calibrated = calibration(judged);
  return {
    judged,
    report: {
      metrics: verdictMetrics(judged, { invalidAsWrong: config.eval.invalid_as_wrong }),
      pair_accuracy: pairAccuracy,
      ...(calibrated ? { calibration: calibrated } : {}),
    },
  };
}

/** The pairwise loss makes σ of the difference the probability that "right" is the right verdict. */
function verdictOf({ positive, negative }: { readonly positive: number; readonly negative: number }) {
  const lead = positive - negative;
  return {
    verdict: lead > 0 ? 1 : 0,
    probability: 1 / (1 + Math.exp(-lead)),
    logPositive: -Math.log1p(Math.exp(-lead)),
    logNegative: -Math.log1p(Math.exp(lead)),
  } as const;
}
