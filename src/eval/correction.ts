// `steptrain eval correction`: how well a model tells right steps of held-out solutions from wrong ones.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { inMemory } from '../data/dataset.js';
import type { SeenSteps } from '../data/overlap.js';
import { type VerdictPromptOptions, verdictTokenizer } from '../data/verdict.js';
import { makeDirectories } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { writeJson } from '../files/json-file.js';
import { loadAdapter } from '../models/adapter.js';
import type { Decoder, Role } from '../models/decoder.js';
import { loadDecoder } from '../models/load.js';
import type { StepRecord } from '../records/record.js';
import { RunError } from '../run/error.js';
import type { Device } from '../runtime/device.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import { verdictSequence } from '../sequences/sequence.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { VERDICT_DUMP, writeVerdictDump } from './dump.js';
import { type EvaluationOptions, evaluateVerdicts } from './evaluate.js';
import type { JudgedVerdict } from './judged-verdict.js';
import { likelihoodVerdicts, type StepLikelihoods, stepLikelihoods } from './likelihood.js';
import type { VerdictMetrics } from './metrics.js';
import type { EvalReport } from './report.js';
import type { StepScorer } from './step-scorer.js';
import { judgeVerdicts } from './verdicts.js';

/** The model that judges, and its settings. */
export interface Judge {
  /** Hugging Face directory. */
  readonly model: string;
  /** PEFT directory. */
  readonly adapter: string | undefined;
  readonly dtype: 'f32' | 'bf16';
  readonly tokenizer: Tokenizer;
  readonly prompt: VerdictPromptOptions;
  readonly maxLength: number;
  readonly threshold: 'greedy' | number;
  /** Of a judge by verdict words that also goes by how likely the base finds the steps. */
  readonly likelihood?: LikelihoodWeights | undefined;
  /** A reward model instead of verdict words; its scores are probabilities. */
  readonly scorer?:
    | ((decoder: Decoder, role: Pick<Role, 'adapter'>, tokenizer: Tokenizer) => StepScorer)
    | undefined;
}

/** What is judged, and what the report needs besides the verdicts. */
export interface CorrectionTask
  extends Pick<
    EvaluationOptions,
    'method' | 'data' | 'invalidAsWrong' | 'valueLosses' | 'warnings' | 'seen'
  > {
  readonly judge: Judge;
  readonly test: readonly StepRecord[];
  /** For the choice of thresholds; may be empty. */
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

/** Max tokens per forward; no metric depends on it. */
const TOKENS_AT_ONCE = 4096;

export async function evaluateCorrection(
  device: Device,
  task: CorrectionTask,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<CorrectionResult> {
  const { judge } = task;
  const decoder = await loadDecoder(device, judge.model, { dtype: judge.dtype });
  try {
    const adapter =
      judge.adapter === undefined ? undefined : loadAdapter(device, decoder.config, judge.adapter);
    try {
      return await evaluateOn(decoder, { adapter }, task, { onProgress });
    } finally {
      adapter?.dispose();
    }
  } finally {
    decoder.dispose();
  }
}

/** How a loaded model judges. */
export type LoadedJudge = Omit<Judge, 'model' | 'adapter' | 'dtype'>;

/** The same with a model that is loaded already. Throws the signal's reason where it stopped the call. */
export async function evaluateOn(
  decoder: Decoder,
  role: Pick<Role, 'adapter'>,
  task: Omit<CorrectionTask, 'judge'> & { readonly judge: LoadedJudge },
  {
    onProgress = () => {},
    signal,
  }: {
    readonly onProgress?: ((done: number, total: number) => void) | undefined;
    readonly signal?: AbortSignal | undefined;
  } = {},
): Promise<CorrectionResult> {
  const { judge, test, validation } = task;
  const records = [...validation, ...test];
  const progress = (done: number) => onProgress(done, records.length);
  const solutions = judge.scorer
    ? await byScores(judge.scorer(decoder, role, judge.tokenizer), judge, records, progress, signal)
    : await byWords(decoder, role, judge, records, progress, signal);
  signal?.throwIfAborted();
  const judged = solutions.judged
    .filter(({ solution }) => solution >= validation.length)
    .map((verdict) => ({ ...verdict, solution: verdict.solution - validation.length }));
  const chosenOn = solutions.judged.filter(({ solution }) => solution < validation.length);
  const tooLong = solutions.tooLong.slice(validation.length).reduce((sum, steps) => sum + steps, 0);
  const unjudged = `${tooLong} labelled steps lie beyond the longest sequence of ${judge.maxLength} tokens and were not judged`;
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
  const report = evaluateVerdicts(judged, {
    ...options,
    records: test,
    validation: chosenOn,
    likelihood,
    positivePrior: positivePrior ?? positiveShare(chosenOn.length > 0 ? chosenOn : judged),
    baselines: trainedBaselines(earlier?.baselines, judged.length),
    baselinesUnseen: task.seen
      ? trainedBaselines(earlier?.baselines_unseen, judged.filter((step) => !task.seen?.(step)).length)
      : {},
    warnings: [...(task.warnings ?? []), ...(tooLong > 0 ? [unjudged] : [])],
  });
  return { report, judged };
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
  try {
    await makeDirectories(directory);
  } catch (error) {
    throw new RunError(`cannot make the directory ${directory}: ${systemReason(error)}`, { cause: error });
  }
}

interface JudgedRecords {
  readonly judged: JudgedVerdict[];
  /** Labelled steps that were not judged, by solution. */
  readonly tooLong: readonly number[];
  /** Where the likelihood judges too. */
  readonly likelihoods?: StepLikelihoods | undefined;
}

async function byWords(
  decoder: Decoder,
  role: Pick<Role, 'adapter'>,
  judge: LoadedJudge,
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
  const judged = await judgeVerdicts(decoder, role, inMemory(sequences), {
    threshold: judge.threshold,
    microBatchTokens: TOKENS_AT_ONCE,
    tokenizer: verdicts,
    onProgress,
    ...(signal ? { signal } : {}),
  });
  const likelihoods =
    judge.likelihood &&
    (await stepLikelihoods(decoder, inMemory(sequences), {
      microBatchTokens: TOKENS_AT_ONCE,
      signal,
      numbers: judge.likelihood.of === 'numbers' ? judge.tokenizer : undefined,
    }));
  return { judged, tooLong, likelihoods };
}

/** Solutions scored at a time, for the progress. */
const SCORED_AT_ONCE = 64;

async function byScores(
  scorer: StepScorer,
  { threshold }: LoadedJudge,
  records: readonly StepRecord[],
  onProgress: (done: number) => void,
  signal: AbortSignal | undefined,
): Promise<JudgedRecords> {
  const least = threshold === 'greedy' ? 0.5 : threshold;
  const judged: JudgedVerdict[] = [];
  const tooLong: number[] = [];
  for (let at = 0; at < records.length; at += SCORED_AT_ONCE) {
    const part = records.slice(at, at + SCORED_AT_ONCE);
    const found = await scorer.score(
      part.map(({ problem, steps }) => ({ problem, steps: steps.map(({ text }) => text) })),
      signal ? { signal } : {},
    );
    if (!found) break;
    part.forEach(({ steps }, i) => {
      let unscored = 0;
      steps.forEach(({ label }, step) => {
        const probability = found[i]?.scores[step];
        if (label === null) return;
        if (probability === null || probability === undefined) unscored++;
        else {
          const verdict = probability >= least ? 1 : 0;
          const logs = { logPositive: Math.log(probability), logNegative: Math.log1p(-probability) };
          judged.push({ solution: at + i, step, label, verdict, probability, ...logs });
        }
      });
      tooLong.push(unscored);
    });
    onProgress(Math.min(records.length, at + part.length));
  }
  return { judged, tooLong };
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
