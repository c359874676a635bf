// `steptrain eval correction`: how well something tells right steps of held-out solutions from wrong ones.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Model, openSaved } from '../api/model.js';
import { inMemory } from '../data/dataset.js';
import { recordsOf, type StepRows } from '../data/load.js';
import type { SeenSteps } from '../data/overlap.js';
import { verdictTokenizer } from '../data/verdict.js';
import { badOption } from '../files/data-error.js';
import { writeJson } from '../files/json-file.js';
import { readCard } from '../models/card.js';
import { log, log1p } from '../native/elementary.js';
import { ending } from '../native/ending.js';
import { checkOptions, DisposedError } from '../native/errors.js';
import type { StepRecord } from '../records/record.js';
import { makeResultsDirectory } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { resolveSaved } from '../run/resolve-saved.js';
import { namedTokenizer } from '../run/tokenizer.js';
import type { Device } from '../runtime/device.js';
import { unparsedSentence } from '../scoring/generative/unparsed.js';
import { isModel, JUDGE_OPTIONS, type JudgeStepsOptions } from '../scoring/judge.js';
import { type ModelScorersOptions, modelScorers, settingsOf } from '../scoring/kinds.js';
import { isNoModel, type OpenScorerOptions, openScorer } from '../scoring/open.js';
import { ofOutcomes, probabilityOf, type Scorer, verdictsIn } from '../scoring/scorer.js';
import type { JudgeSettings, LikelihoodWeights, SettingsOf } from '../scoring/settings.js';
import { unlikeBy } from '../scoring/unlike-training.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import {
  type StepLikelihoods,
  stepCalculations,
  stepLikelihoods,
  withUnread,
} from '../scoring/verdict/likelihood.js';
import { judgeVerdicts } from '../scoring/verdict/verdicts.js';
import { tokensAtOnce } from '../sequences/batching.js';
import { verdictSequence } from '../sequences/sequence.js';
import { readingUpTo } from '../tokenizer/reading-up-to.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { type EvaluationOptions, evaluateVerdicts } from './evaluate-verdicts.js';
import { keptVerdicts, likelihoodVerdicts } from './likelihood-weights.js';
import { recordScores } from './record-solution.js';
import { VERDICT_DUMP, writeVerdictDump } from './reports/dump.js';
import type { EvalReport } from './reports/eval-report.js';
import type { VerdictMetrics } from './statistics/metrics.js';
import { sureReport } from './sure.js';

/** A judge by its name, with the options that open it. */
export interface NamedScorer extends OpenScorerOptions {
  readonly source: string;
}

/** The data to judge, and the settings that the report needs as well as the verdicts. */
export interface CorrectionTask
  extends Pick<
    EvaluationOptions,
    'method' | 'data' | 'invalidAsWrong' | 'pretrained' | 'valueLosses' | 'warnings' | 'seen'
  > {
  readonly judge: NamedScorer;
  readonly test: readonly StepRecord[];
  /** Steps for the choice of thresholds; may be empty. */
  readonly validation: readonly StepRecord[];
  /** Default: taken from the validation steps, else from the judged ones. */
  readonly positivePrior: number | undefined;
  /** Baselines to copy into the report if they were judged on the same number of steps. */
  readonly earlier?: EvalReport | undefined;
}

export interface CorrectionResult {
  readonly report: EvalReport;
  readonly judged: readonly JudgedVerdict[];
}

export async function evaluateCorrection(
  device: Device,
  { judge: { source, ...options }, ...task }: CorrectionTask,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<CorrectionResult> {
  if (isNoModel(source)) {
    using scorer = ending(await openScorer(device, source, { ...options, unit: 'step', strict: true }));
    return await evaluateScorer(scorer, task, { onProgress });
  }
  const saved = await resolveSaved(source, options);
  using model = await openSaved(device, saved, { dtype: options.dtype, quantize: options.quantize });
  const tokenizer = await namedTokenizer(saved.tokenizer);
  return await evaluateModel(model, { ...options, name: source, tokenizer }, task, { onProgress });
}

type Judged = Omit<CorrectionTask, 'judge'>;

interface Progress {
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Evaluates a model that is already loaded. Throws the signal's reason where it stopped the call. */
async function evaluateModel(
  model: Model,
  options: Omit<ModelScorersOptions, 'settings' | 'skipUnreadable'>,
  task: Judged,
  progress: Progress,
): Promise<CorrectionResult> {
  const settings = settingsOf(model, options, options.name);
  const tokenizer = options.tokenizer ?? (await model.tokenizer());
  const { maxPositions } = model.decoder.config;
  if (settings.kind === 'verdict' && !settings.calibration) {
    const maxLength = Math.min(options.maxLength ?? settings.max_length, maxPositions);
    const judge = { ...settings, tokenizer: readingUpTo(tokenizer, maxLength), maxLength };
    return evaluateBy(
      (records, told) => byWords(model, judge, records, told, progress.signal),
      judge,
      { ...task, warnings: [...(task.warnings ?? []), ...unlikeWarning(settings, task.test)] },
      progress,
    );
  }
  using opened = ending(await modelScorers(model, { ...options, tokenizer, settings }));
  const [scorer] = Object.values(opened.scorers) as [Scorer];
  return await evaluateScorer(scorer, task, progress);
}

async function evaluateScorer(scorer: Scorer, task: Judged, progress: Progress): Promise<CorrectionResult> {
  if (scorer.unit === 'outcome') throw ofOutcomes(scorer.name);
  if (scorer.scale === 'reward')
    throw new RunError(`${scorer.name} gives no probability of a step, and its evaluation needs one`);
  const { threshold: least } = scorer;
  const threshold = probabilityOf(scorer, least) ?? 'greedy';
  const result = await evaluateBy(
    (records, told) => byScores(scorer, records, told, progress.signal),
    { threshold, unsure: scorer.unsure },
    task,
    progress,
  );
  const { report } = result;
  const [cost, unparsed] = [scorer.report?.(), unparsedSentence(scorer)];
  const data = cost === undefined ? report.data : { ...report.data, cost };
  const warnings = unparsed === undefined ? {} : { warnings: [...(report.warnings ?? []), unparsed] };
  return { ...result, report: { ...report, data, ...warnings } };
}

async function evaluateBy(
  judging: (records: readonly StepRecord[], told: (done: number) => void) => Promise<JudgedRecords>,
  judge: {
    readonly threshold: 'greedy' | number;
    readonly unsure?: number | undefined;
    readonly maxLength?: number;
    readonly likelihood?: LikelihoodWeights | undefined;
  },
  task: Judged,
  { onProgress, signal }: Progress,
): Promise<CorrectionResult> {
  const { test, validation } = task;
  if (test.length === 0) throw badOption('there is no solution to judge');
  const records = [...validation, ...test];
  const solutions = await judging(records, (done) => onProgress?.(done, records.length));
  signal?.throwIfAborted();
  const judged = solutions.judged
    .filter(({ solution }) => solution >= validation.length)
    .map((verdict) => ({ ...verdict, solution: verdict.solution - validation.length }));
  const chosenOn = solutions.judged.filter(({ solution }) => solution < validation.length);
  const tooLong = solutions.tooLong.slice(validation.length).reduce((sum, steps) => sum + steps, 0);
  const unjudged = `${tooLong} labelled steps ${judge.maxLength === undefined ? 'have no score' : `lie beyond the longest sequence of ${judge.maxLength} tokens`} and were not judged`;
  const { likelihoods } = solutions;
  const likelihood =
    likelihoods &&
    likelihoodVerdicts(
      {
        validation: { judged: chosenOn, likelihoods: likelihoods.slice(0, validation.length) },
        test: { judged, likelihoods: likelihoods.slice(validation.length) },
      },
      { threshold: judge.threshold, weights: judge.likelihood, of: judge.likelihood?.of },
    );
  const { earlier, positivePrior, ...options } = task;
  const ofWords = earlier?.words ?? earlier;
  const report = evaluateVerdicts(judged, {
    ...options,
    records: test,
    validation: chosenOn,
    likelihood,
    threshold: judge.threshold === 'greedy' ? undefined : judge.threshold,
    positivePrior: positivePrior ?? positiveShare(chosenOn.length > 0 ? chosenOn : judged),
    baselines: trainedBaselines(ofWords?.baselines, judged.length),
    baselinesUnseen: task.seen
      ? trainedBaselines(ofWords?.baselines_unseen, judged.filter((step) => !task.seen?.(step)).length)
      : {},
    warnings: [...(task.warnings ?? []), ...(tooLong > 0 ? [unjudged] : [])],
  });
  const kept = keptVerdicts(judged, likelihood);
  const sure = judge.unsure === undefined ? undefined : sureReport(kept, judge.unsure);
  return { report: { ...report, ...(sure ? { sure } : {}) }, judged: kept };
}

/** Writes eval.json and verdicts.jsonl into `directory`. */
export async function writeCorrection(
  directory: string,
  { report, judged }: CorrectionResult,
  records: readonly StepRecord[],
  seen?: SeenSteps,
): Promise<void> {
  await writeVerdictDump(join(directory, VERDICT_DUMP), judged, records, seen);
  await writeJson(join(directory, 'eval.json'), report);
}

/** Creates the directory; refuses one that already holds an evaluation. */
export async function makeOutputDirectory(directory: string): Promise<void> {
  const taken = ['eval.json', VERDICT_DUMP].find((name) => existsSync(join(directory, name)));
  if (taken !== undefined)
    throw new RunError(`${directory} already holds ${taken}; choose another directory for --output`);
  await makeResultsDirectory(directory);
}

/** Says of how many solutions the judge is unsure, as they are unlike all that it learned from. */
function unlikeWarning(settings: JudgeSettings, records: readonly StepRecord[]): string[] {
  const unlike = unlikeBy(settings);
  const texts = records.map(({ problem, steps }) => ({ problem, steps: steps.map(({ text }) => text) }));
  const count = texts.filter((solution) => unlike?.(solution)?.from !== undefined).length;
  return count === 0
    ? []
    : [
        `${count} of ${records.length} solutions are unlike all that this judge learned from: it is unsure there, and these metrics count its verdicts all the same`,
      ];
}

interface JudgedRecords {
  readonly judged: readonly JudgedVerdict[];
  /** Labelled steps that were not judged, by solution. */
  readonly tooLong: readonly number[];
  /** Set where the likelihood judges too. */
  readonly likelihoods?: StepLikelihoods | undefined;
}

async function byWords(
  { decoder, adapter }: Model,
  judge: SettingsOf<'verdict'> & { readonly tokenizer: Tokenizer; readonly maxLength: number },
  records: readonly StepRecord[],
  onProgress: (done: number) => void,
  signal: AbortSignal | undefined,
): Promise<JudgedRecords> {
  const verdicts = verdictTokenizer(judge.prompt, judge.tokenizer);
  const tooLong: number[] = [];
  const sequences = records.map((record, i) => {
    const solution = verdicts.solution(record, { maxLength: judge.maxLength });
    tooLong.push(solution.tooLong);
    return verdictSequence(solution, verdicts, i);
  });
  const judged = await judgeVerdicts(decoder, { adapter }, inMemory(sequences), {
    ...{ threshold: judge.threshold, votes: judge.votes },
    microBatchTokens: tokensAtOnce(decoder, signal),
    tokenizer: verdicts,
    onProgress,
    ...(signal ? { signal } : {}),
  });
  if (!judge.likelihood) return { judged, tooLong };
  if (judge.likelihood.of === 'calculations') {
    const likelihoods = stepCalculations(records);
    const all = withUnread(judged, likelihoods, (solution, step) => records[solution]?.steps[step]?.label);
    for (const { solution, unread } of all) if (unread) (tooLong[solution] as number)--;
    return { judged: all, tooLong, likelihoods };
  }
  const options = { microBatchTokens: tokensAtOnce(decoder, signal), signal };
  return { judged, tooLong, likelihoods: await stepLikelihoods(decoder, inMemory(sequences), options) };
}

async function byScores(
  scorer: Scorer,
  records: readonly StepRecord[],
  onProgress: (done: number) => void,
  signal: AbortSignal | undefined,
): Promise<JudgedRecords> {
  const judged: JudgedVerdict[] = [];
  const tooLong: number[] = [];
  for await (const { record, index, own } of recordScores(scorer, records, signal, onProgress)) {
    const verdicts = verdictsIn(scorer, own);
    let unscored = 0;
    record.steps.forEach(({ label }, step) => {
      const score = own.scores[step] ?? null;
      if (label === null) return;
      if (score === null) unscored++;
      else {
        const probability = probabilityOf(scorer, score) as number;
        const logs = { logPositive: logOf(probability), logNegative: logOf(1 - probability, -probability) };
        const verdict = verdicts[step] ?? undefined;
        judged.push({ solution: index, step, label, verdict, probability, ...logs });
      }
    });
    tooLong.push(unscored);
  }
  return { judged, tooLong };
}

/** log p; for 0 as low as can be written; with `less` computed as log(1 + less), which is more exact near 1. */
function logOf(p: number, less?: number): number {
  if (p <= 0) return log(Number.MIN_VALUE);
  return less === undefined ? log(p) : log1p(less);
}

function positiveShare(steps: readonly { readonly label: 0 | 1 }[]): number {
  return steps.length === 0 ? 0.5 : steps.filter(({ label }) => label === 1).length / steps.length;
}

const TRIVIAL = new Set(['always_positive', 'always_negative', 'majority', 'random']);

function trainedBaselines(
  earlier: EvalReport['baselines'] | undefined,
  steps: number,
): Record<string, VerdictMetrics> {
  return Object.fromEntries(
    Object.entries(earlier ?? {}).filter(([name, { n }]) => !TRIVIAL.has(name) && n === steps),
  );
}

export interface EvaluateOptions extends JudgeStepsOptions {
  /** Labelled solutions on which thresholds are chosen; they are not judged by them. Default none. */
  readonly validation?: StepRows | undefined;
  /** The report's description of the data. */
  readonly data?: Readonly<Record<string, unknown>> | undefined;
  /** A verdict that is neither word counts as wrong, instead of being left out. Default true. */
  readonly invalidAsWrong?: boolean | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

const EVALUATE_OPTIONS: Record<keyof EvaluateOptions, true> = {
  ...JUDGE_OPTIONS,
  validation: true,
  data: true,
  invalidAsWrong: true,
  onProgress: true,
};

/**
 * Judges the labelled steps of solutions, and says how well: accuracy, balanced accuracy, F1, AUC, calibration, baselines, and 95 %
 * intervals by problems, as `steptrain eval correction` does. `formatEvalTable` prints it.
 *
 * @param judge a model that judges steps, or any scorer of steps
 * @param records a list, or the `records` of `loadRecords`, which are read to their end; rows such as `{ question, steps, labels }` too
 * @throws RunError for what gives no probability of steps, DataError for text that the tokenizer cannot express, the signal's reason
 *   if it stopped the call
 */
export async function evaluate(
  judge: Model | Scorer,
  records: StepRows,
  given: EvaluateOptions = {},
): Promise<EvalReport> {
  checkOptions('evaluate', given, EVALUATE_OPTIONS);
  const { validation = [], data = {}, invalidAsWrong = true, onProgress, signal, ...options } = given;
  const isOpen = isModel('evaluate', judge);
  if (isOpen && judge.isDisposed) throw new DisposedError('the model');
  const task = {
    test: await recordsOf('evaluate', records),
    validation: await recordsOf('evaluate: validation', validation),
    positivePrior: undefined,
    data,
    invalidAsWrong,
  };
  const progress = { onProgress, signal };
  if (!isOpen) return (await evaluateScorer(judge, { ...task, method: judge.name }, progress)).report;
  const { files } = judge;
  const method = (files && readCard(files.adapter ?? files.model)?.method) ?? 'model';
  return (await evaluateModel(judge, options, { ...task, method }, progress)).report;
}
