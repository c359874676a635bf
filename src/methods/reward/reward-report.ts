/** Evaluates a reward model on held-out solutions: by step, by outcome, and compared with their length. */
import { type ClassCounts, choosesThreshold, weighsClasses } from '../../data/rare-class.js';
import { mixtureOf } from '../../data/summary.js';
import { evaluateVerdicts, verdictMetrics } from '../../eval/evaluate-verdicts.js';
import { lengthClassifier } from '../../eval/length-classifier.js';
import { VERDICT_DUMP, writeVerdictDump } from '../../eval/reports/dump.js';
import type { EvalReport } from '../../eval/reports/eval-report.js';
import { calibration } from '../../eval/statistics/calibration.js';
import type { VerdictMetrics } from '../../eval/statistics/metrics.js';
import { bestThreshold, hasBothClasses, thresholdReader } from '../../eval/statistics/thresholds.js';
import { badOption } from '../../files/data-error.js';
import type { StepRecord } from '../../records/record.js';
import type { ScoredRow } from '../../scoring/reward-model/items.js';
import { type RewardNetwork, scoreItems } from '../../scoring/reward-model/network.js';
import { type JudgedVerdict, verdictOfOdds } from '../../scoring/verdict/judged.js';
import { createProgress } from '../../terminal/progress.js';
import type { OpenRun } from '../../train/method.js';
import type { Trainee } from '../../train/roles/trainee.js';
import type { HeldOut } from '../../train/verdicts/evaluation.js';
import { keepThreshold } from '../../train/verdicts/kept-judge.js';
import type { RewardRunConfig } from './config.js';
import type { RewardData } from './data.js';

export type RewardRun = OpenRun<RewardRunConfig, RewardData, Trainee>;

type Judged = Readonly<Record<ScoredRow['what'], readonly JudgedVerdict[]>>;

/** No verdict is unreadable. */
const READABLE = { invalidAsWrong: true };

/** Judges a held-out part; undefined if the signal stopped it. */
async function judgeByReward(
  open: RewardRun,
  network: RewardNetwork,
  part: HeldOut,
  signal: AbortSignal,
  title?: string,
): Promise<Judged | undefined> {
  const items = open.data.items[part];
  const progress = title ? createProgress({ total: items.length, unit: `${title} solution` }) : undefined;
  const scores = await scoreItems(network, items, {
    microBatchTokens: open.microBatchTokens('reward'),
    signal,
    ...(progress ? { onProgress: (done) => progress.update(done) } : {}),
  });
  progress?.finish();
  if (!scores) return undefined;
  const judged = { step: [] as JudgedVerdict[], outcome: [] as JudgedVerdict[] };
  scores.forEach((list, solution) => {
    items.get(solution).rows.forEach(({ what, step, label }, r) => {
      const logOdds = list[r] as number;
      if (label === null) return;
      const found = verdictOfOdds(logOdds, leastOf(open.config.eval_scores.threshold));
      judged[what].push({ solution, step, label, ...found });
    });
  });
  return judged;
}

/** Metrics of the validation part: of the steps, or of the outcomes where nothing else is scored. */
export async function rewardValidation(
  open: RewardRun,
  network: RewardNetwork,
  signal: AbortSignal,
): Promise<Record<string, number> | undefined> {
  const judged = await judgeByReward(open, network, 'validation', signal);
  if (!judged) return undefined;
  const { type } = open.config.reward_model;
  const judgedBy = type === 'orm' ? judged.outcome : judged.step;
  if (judgedBy.length === 0)
    throw badOption(
      `no ${type === 'orm' ? 'solution' : 'step'} of the validation part can be judged, so nothing could be selected by it; ` +
        `raise data.max_length (now ${open.config.data.max_length}), or check that its steps have labels`,
    );
  const outcomes = verdictMetrics(judged.outcome, READABLE);
  if (type === 'orm') return metricsOf(outcomes);
  const steps = metricsOf(verdictMetrics(judged.step, READABLE));
  return type === 'prm' ? steps : { ...steps, outcome_f1_macro: outcomes.f1_macro };
}

export function metricsOf({ accuracy, f1_macro, acc_pos, acc_neg, balanced_accuracy, auc }: VerdictMetrics) {
  return { accuracy, f1_macro, acc_pos, acc_neg, balanced_accuracy, ...(auc === undefined ? {} : { auc }) };
}

/** The report on the test part; writes verdicts.jsonl. Undefined if the signal stopped it. */
export async function rewardReport(
  open: RewardRun,
  network: RewardNetwork,
  tokens: number,
  signal: AbortSignal,
): Promise<EvalReport | undefined> {
  const { config, data, run } = open;
  const { type } = config.reward_model;
  const onValidation = await judgeByReward(open, network, 'validation', signal);
  const onTest = onValidation && (await judgeByReward(open, network, 'test', signal, 'evaluation:'));
  if (!onTest) return undefined;
  const what = type === 'orm' ? 'outcome' : 'step';
  const counts = trainedClasses(open);
  const chosen =
    choosesThreshold(config.eval_scores.threshold, counts) && hasBothClasses(onValidation[what])
      ? thresholdReader(bestThreshold(onValidation[what], 'f1_macro').threshold)
      : undefined;
  const validation = { ...onValidation, ...(chosen ? { [what]: chosen.read(onValidation[what]) } : {}) };
  const judged = { ...onTest, ...(chosen ? { [what]: chosen.read(onTest[what]) } : {}) };
  const records = [...data.records.test];
  const outcomes = type === 'prm' ? undefined : outcomeReport(open, records, judged.outcome);
  const seen = what === 'step' ? data.seen.test : undefined;
  await writeVerdictDump(run.file(VERDICT_DUMP), judged[what], records, seen);
  const { positive, negative } = counts;
  const prior = positive + negative > 0 ? positive / (positive + negative) : 0.5;
  const report = evaluateVerdicts(judged[what], {
    method: config.method,
    unit: what === 'step' ? 'steps' : 'solutions',
    data: {
      source: config.data.source,
      files: data.reports.flatMap(({ files }) => files),
      ...mixtureOf(data.reports),
      train_solutions: data.records.train.length,
      train_positive_share: prior,
      left_out: Object.fromEntries(data.leftOut),
      trained_tokens: tokens,
    },
    // Outcomes say nothing of where a solution goes wrong.
    records: what === 'step' ? records : records.map(withoutLabels),
    ...READABLE,
    positivePrior: prior,
    balanced: config.data.balance !== 'none' || weighsClasses(config.reward_model.class_weight, counts),
    threshold: chosen?.threshold,
    validation: validation[what],
    baselines: outcomes && type === 'orm' ? { length: outcomes.length } : {},
    outcomes: type === 'joint' ? outcomes : undefined,
    seen,
  });
  await keepThreshold(run, chosen?.threshold, report);
  return report;
}

function outcomeReport(
  { data }: RewardRun,
  records: readonly StepRecord[],
  judged: readonly JudgedVerdict[],
): NonNullable<EvalReport['outcomes']> {
  const predict = lengthClassifier(data.records.train);
  const byLength = judged.map((verdict) => {
    const p = predict(records[verdict.solution] as StepRecord);
    return { label: verdict.label, probability: p, verdict: p >= 0.5 ? (1 as const) : (0 as const) };
  });
  const calibrated = calibration(judged);
  return {
    metrics: verdictMetrics(judged, READABLE),
    length: verdictMetrics(byLength, READABLE),
    ...(calibrated ? { calibration: calibrated } : {}),
  };
}

/** Counts of what the main metrics judge, in the training part. */
function trainedClasses({ config, data }: RewardRun): ClassCounts {
  if (config.reward_model.type !== 'orm') return data.labels;
  const counts = { positive: 0, negative: 0 };
  for (const { outcome } of data.records.train)
    if (outcome !== undefined) counts[outcome === 1 ? 'positive' : 'negative']++;
  return counts;
}

const leastOf = (threshold: RewardRunConfig['eval_scores']['threshold']) =>
  typeof threshold === 'number' ? threshold : 0.5;

function withoutLabels(record: StepRecord): StepRecord {
  return { ...record, steps: record.steps.map((step) => ({ ...step, label: null })) };
}
