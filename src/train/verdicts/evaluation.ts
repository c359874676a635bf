/** The evaluations of a verdict run: validation metrics during training, and the report at the end. */
import { fixedThreshold } from '../../config/eval-sections.js';
import { choosesThreshold, selectionOf, weighsClasses } from '../../data/rare-class.js';
import { mixtureOf } from '../../data/summary.js';
import { evaluateVerdicts, verdictMetrics } from '../../eval/evaluate-verdicts.js';
import { keptVerdicts } from '../../eval/likelihood-weights.js';
import { VERDICT_DUMP, writeVerdictDump } from '../../eval/reports/dump.js';
import type { EvalReport } from '../../eval/reports/eval-report.js';
import type { VerdictMetrics } from '../../eval/statistics/metrics.js';
import { bestThreshold, hasBothClasses, thresholdReader } from '../../eval/statistics/thresholds.js';
import { isPretrained } from '../../models/base.js';
import type { Role } from '../../models/decoder.js';
import type { JudgedVerdict } from '../../scoring/verdict/judged.js';
import { judgeVerdicts } from '../../scoring/verdict/verdicts.js';
import { createProgress } from '../../terminal/progress.js';
import type { VerdictRun } from './data.js';
import { judgeDirectory, keepJudge, verdictsByLikelihood } from './kept-judge.js';

export type HeldOut = 'validation' | 'test';

/** Judges a held-out part, with a progress line under `title`; undefined if the signal stopped it. */
export type PartVerdicts = (
  part: HeldOut,
  signal: AbortSignal,
  title?: string,
) => Promise<readonly JudgedVerdict[] | undefined>;

/** Metrics of the validation part; undefined if the signal stopped it. */
export async function validationMetrics(
  open: VerdictRun,
  role: Role,
  signal: AbortSignal,
): Promise<Record<string, number> | undefined> {
  const judged = await roleJudge(open, role)('validation', signal);
  if (!judged) return undefined;
  const metrics = shortMetrics(metricsOf(open, judged));
  const selection = selectionOf(open.config.eval_verdicts.metric_for_best_model, open.data.labels);
  if (selection !== 'best_f1_macro') return metrics;
  const steps = readable(open, judged);
  // Steps of one class have no threshold.
  if (!hasBothClasses(steps)) return metrics;
  return { ...metrics, best_f1_macro: bestThreshold(steps, 'f1_macro').value };
}

/** A role that answers with verdict words. */
export function roleJudge(
  { config, data, roles: { decoder }, ...open }: VerdictRun,
  role: Role,
): PartVerdicts {
  return async (part, signal, title) => {
    const sequences = data.sequences[part];
    const progress = title
      ? createProgress({ total: sequences.length, unit: `${title} solution` })
      : undefined;
    const judged = await judgeVerdicts(decoder, role, sequences, {
      threshold: fixedThreshold(config.eval_verdicts.threshold),
      tokenizer: data.tokenizer,
      microBatchTokens: open.microBatchTokens('sft'),
      signal,
      ...(progress ? { onProgress: (done) => progress.update(done) } : {}),
    });
    progress?.finish();
    return signal.aborted ? undefined : judged;
  };
}

/**
 * The report on the test part, with other models evaluated on the same steps; writes verdicts.jsonl. Undefined if the
 * signal stopped it.
 *
 * @param others other judges by name
 */
export async function finalEvaluation(
  open: VerdictRun,
  role: Role,
  others: Readonly<Record<string, PartVerdicts>>,
  more: {
    readonly data: Readonly<Record<string, unknown>>;
    readonly valueLosses?: readonly number[];
    readonly rewardNetwork?: EvalReport['reward_network'];
    /** Whether training was no better than its start, so that the words are those of the base. */
    readonly isUntrained?: boolean;
  },
  signal: AbortSignal,
): Promise<EvalReport | undefined> {
  const { config, data, run } = open;
  const baselines: Record<string, VerdictMetrics> = {};
  const baselinesUnseen: Record<string, VerdictMetrics> = {};
  const byOthers: Record<string, readonly JudgedVerdict[]> = {};
  const seen = data.seen.test;
  const chooses =
    choosesThreshold(config.eval_verdicts.threshold, data.labels) && !config.eval_verdicts.likelihood;
  for (const [name, judge] of Object.entries(others)) {
    const byWord = await judge('test', signal, `evaluation of ${name}:`);
    const chosenOn = byWord && chooses ? await judge('validation', signal) : [];
    if (!byWord || !chosenOn) return undefined;
    // Each at the threshold that suits it.
    const judged = chosenThreshold(open, chosenOn)?.read(byWord) ?? byWord;
    byOthers[name] = judged;
    baselines[name] = metricsOf(open, judged);
    const unseen = judged.filter((verdict) => !seen(verdict));
    baselinesUnseen[name] = metricsOf(open, unseen);
  }
  const own = roleJudge(open, role);
  const validationByWord = await own('validation', signal);
  const testByWord = validationByWord && (await own('test', signal, 'evaluation:'));
  if (!testByWord) return undefined;
  const chosen = chooses ? chosenThreshold(open, validationByWord) : undefined;
  const validation = chosen?.read(validationByWord) ?? validationByWord;
  const judged = chosen?.read(testByWord) ?? testByWord;
  const likelihood = config.eval_verdicts.likelihood
    ? await verdictsByLikelihood(open, { validation, test: judged }, { wordless: more.isUntrained, signal })
    : undefined;
  if (signal.aborted) return undefined;
  const doubts = [
    ...(chooses && !chosen
      ? [
          'no threshold could be chosen: the validation steps have one class only, and the likelier word is the verdict',
        ]
      : []),
    ...(more.isUntrained
      ? [`${likelihood && !likelihood.isChance ? WORDLESS : UNTRAINED}; ${wayOut(open)}`]
      : []),
    ...(config.eval_verdicts.likelihood && !likelihood
      ? ['eval_verdicts.likelihood needs validation steps of both classes: the judge goes by the words alone']
      : []),
  ];
  const records = [...data.records.test];
  await writeVerdictDump(run.file(VERDICT_DUMP), keptVerdicts(judged, likelihood), records, seen);
  const { labels } = data;
  const report = evaluateVerdicts(judged, {
    method: config.method,
    data: {
      source: config.data.source,
      files: data.reports.flatMap(({ files }) => files),
      ...mixtureOf(data.reports),
      train_solutions: data.records.train.length,
      train_steps: labels.n,
      train_positive_share: labels.n > 0 ? labels.positive / labels.n : 0,
      ...more.data,
    },
    records,
    invalidAsWrong: config.eval_verdicts.invalid_as_wrong,
    positivePrior: labels.n > 0 ? labels.positive / labels.n : 0.5,
    validation,
    baselines,
    baselinesUnseen,
    others: byOthers,
    seen,
    balanced: config.data.balance !== 'none' || weighsClasses(config.sft.class_weight, labels),
    valueLosses: more.valueLosses,
    rewardNetwork: more.rewardNetwork,
    likelihood,
    pretrained: isPretrained(config.model.base),
    threshold: chosen?.threshold,
    warnings: doubts,
  });
  await keepJudge(judgeDirectory(run), {
    threshold: chosen?.threshold,
    likelihood,
    report,
    isUntrained: more.isUntrained === true,
    labels,
    records: data.records,
  });
  return report;
}

/** The verdicts of steps at the threshold that is best on validation steps; undefined where these have one class only. */
function chosenThreshold(open: VerdictRun, validation: readonly JudgedVerdict[]) {
  const steps = readable(open, validation);
  if (!hasBothClasses(steps)) return undefined;
  return thresholdReader(bestThreshold(steps, 'f1_macro').threshold);
}

const readable = ({ config }: VerdictRun, judged: readonly JudgedVerdict[]) =>
  config.eval_verdicts.invalid_as_wrong ? judged : judged.filter(({ unreadable }) => !unreadable);

const UNTRAINED =
  'no evaluation during training was better than that of its start: the parameters of step 0 are kept, and the verdict words say nothing ' +
  'of these steps; give more rows, train longer, or take a base that knows such text';
const WORDLESS =
  'no evaluation during training was better than that of its start: the verdict words learned nothing, and the judge goes by the rest alone';

/** Advice on how a training whose loss fell may still count. */
function wayOut({ config, data }: VerdictRun): string {
  const selection = selectionOf(config.eval_verdicts.metric_for_best_model, data.labels);
  const last = 'sft.load_best_model_at_end=false keeps the last step';
  return `if its loss fell, ${selection === 'auc' ? last : `--set eval_verdicts.metric_for_best_model=auc selects by AUC, and ${last}`}`;
}

function metricsOf({ config }: VerdictRun, judged: readonly JudgedVerdict[]): VerdictMetrics {
  return verdictMetrics(judged, { invalidAsWrong: config.eval_verdicts.invalid_as_wrong });
}

/** The metrics of an evaluation that go into metrics.jsonl. */
export function shortMetrics(metrics: VerdictMetrics): Record<string, number> {
  const { f1_macro, acc_pos, acc_neg, balanced_accuracy, auc } = metrics;
  return { f1_macro, acc_pos, acc_neg, balanced_accuracy, ...(auc === undefined ? {} : { auc }) };
}
