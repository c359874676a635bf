// `steptrain eval correction`: how well a model tells right steps of held-out solutions from wrong ones.
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { inMemory } from '../data/dataset.js';
import type { SeenSteps } from '../data/overlap.js';
import { type VerdictPromptOptions, verdictTokenizer } from '../data/verdict.js';
import { writeJson } from '../files/json-file.js';
import { loadAdapter } from '../models/adapter.js';
import { loadDecoder } from '../models/load.js';
import type { StepRecord } from '../records/record.js';
import { RunError } from '../run/error.js';
import type { Device } from '../runtime/device.js';
import { verdictSequence } from '../sequences/sequence.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { VERDICT_DUMP, writeVerdictDump } from './dump.js';
import { type EvaluationOptions, evaluateVerdicts } from './evaluate.js';
import type { VerdictMetrics } from './metrics.js';
import type { EvalReport } from './report.js';
import { type JudgedVerdict, judgeVerdicts } from './verdicts.js';

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
  const { judge, test, validation } = task;
  const total = validation.length + test.length;
  const solutions = await judgeSolutions(device, judge, [...validation, ...test], (done) =>
    onProgress(done, total),
  );
  const judged = solutions.judged
    .filter(({ solution }) => solution >= validation.length)
    .map((verdict) => ({ ...verdict, solution: verdict.solution - validation.length }));
  const chosenOn = solutions.judged.filter(({ solution }) => solution < validation.length);
  const tooLong = solutions.tooLong.slice(validation.length).reduce((sum, steps) => sum + steps, 0);
  const unjudged = `${tooLong} labelled steps lie beyond the longest sequence of ${judge.maxLength} tokens and were not judged`;
  const { earlier, positivePrior, ...options } = task;
  const report = evaluateVerdicts(judged, {
    ...options,
    records: test,
    validation: chosenOn,
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
    await mkdir(directory, { recursive: true });
  } catch (error) {
    throw new RunError(`cannot make the directory ${directory}: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

async function judgeSolutions(
  device: Device,
  judge: Judge,
  records: readonly StepRecord[],
  onProgress: (done: number) => void,
): Promise<{
  readonly judged: JudgedVerdict[];
  /** By solution. */
  readonly tooLong: readonly number[];
}> {
  const verdicts = verdictTokenizer(judge.prompt, judge.tokenizer);
  const tooLong: number[] = [];
  const sequences = records.map((record, i) => {
    const solution = verdicts.solution(record, { maxLength: judge.maxLength });
    tooLong.push(solution.tooLong);
    return verdictSequence(solution, verdicts, i);
  });
  const decoder = await loadDecoder(device, judge.model, { dtype: judge.dtype });
  try {
    const adapter =
      judge.adapter === undefined ? undefined : loadAdapter(device, decoder.config, judge.adapter);
    try {
      const judged = await judgeVerdicts(decoder, { adapter }, inMemory(sequences), {
        threshold: judge.threshold,
        microBatchTokens: TOKENS_AT_ONCE,
        onProgress,
      });
      return { judged, tooLong };
    } finally {
      adapter?.dispose();
    }
  } finally {
    decoder.dispose();
  }
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
