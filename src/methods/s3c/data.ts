/** The data of a run: ready samples, or right solutions from which the run makes them. */
import type { SourceSolution } from '../../corrections/solution.js';
import { sourceSolutions } from '../../corrections/source.js';
import { limited, solutionRank } from '../../data/limit.js';
import type { LoadReport } from '../../data/load.js';
import { problemKey } from '../../data/overlap.js';
import { type Part, smallestRanks } from '../../data/split.js';
import { type SummarizedSolution, summarizeTrainingData } from '../../data/summary.js';
import { dividedRecords, nothingToTrainOn } from '../../run/parts.js';
import { toLog } from '../../terminal/log.js';
import { reasoningWarning } from '../../tokenizer/chat-reply.js';
import { replyEndWarning } from '../../tokenizer/reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RunData } from '../../train/method.js';
import type { S3cRunConfig } from './config.js';
import { type CorrectionSamples, SampleCollector } from './samples.js';
import { correctionPrompt } from './sequences.js';

export type Solutions = Readonly<Record<Part, readonly SourceSolution[]>>;

export interface S3cData extends RunData {
  /** The samples of the data, or the solutions from which they are made. */
  readonly given: { readonly samples: CorrectionSamples } | { readonly solutions: Solutions };
}

/** Undefined if the signal stopped it. @throws DataError if nothing is left to train on */
export async function s3cData(
  config: S3cRunConfig,
  tokenizer: Tokenizer,
  signal: AbortSignal,
): Promise<S3cData | undefined> {
  const prompt = tokenizer.decode(correctionPrompt(tokenizer, config.format).tokens('?'));
  const data = await (config.corrections === 'none'
    ? readSamples(config, tokenizer, signal)
    : readSolutions(config, signal));
  if (!data) return undefined;
  const warnings = [
    ...reasoningWarning(prompt, 'set format.chat to false'),
    ...replyEndWarning(tokenizer),
    ...data.summary.warnings,
  ];
  return { ...data, summary: { ...data.summary, warnings } };
}

async function readSamples(
  config: S3cRunConfig,
  tokenizer: Tokenizer,
  signal: AbortSignal,
): Promise<S3cData | undefined> {
  const reports: LoadReport[] = [];
  const parts: Record<Part, SummarizedSolution[]> = { train: [], validation: [], test: [] };
  const collector = new SampleCollector(config, tokenizer);
  for await (const { part, record } of dividedRecords(config.data, reports)) {
    if (signal.aborted) return undefined;
    const tokens = collector.add(part, record);
    if (tokens !== undefined) parts[part].push({ ...summarized(part, record), tokens });
  }
  const samples = collector.finish();
  if (samples.train.length === 0) throw nothingToTrainOn(config.data);
  return { given: { samples }, summary: summarizeTrainingData(parts), reports, close() {} };
}

/** Solutions of each part, the training part limited by `data.max_samples`, the others by `eval.max_samples`. */
async function readSolutions(config: S3cRunConfig, signal: AbortSignal): Promise<S3cData | undefined> {
  const { data } = config;
  const reports: LoadReport[] = [];
  const solutions: Record<Part, SourceSolution[]> = { train: [], validation: [], test: [] };
  const leftOut = new Map<string, number>();
  const count = (reason: string) => leftOut.set(reason, (leftOut.get(reason) ?? 0) + 1);
  for await (const { part, solution } of sourceSolutions(data, count, reports)) {
    if (signal.aborted) return undefined;
    solutions[part].push(solution);
  }
  for (const [reason, n] of leftOut) toLog(`${n} solutions are left out: ${reason.replace('_', ' ')}`);
  const rankOf = (solution: SourceSolution) => solutionRank(asRecord(solution), data.seed);
  if (data.max_samples !== 'all')
    solutions.train = smallestRanks(solutions.train.map(rankOf), data.max_samples).map(
      (i) => solutions.train[i] as SourceSolution,
    );
  for (const part of ['validation', 'test'] as const)
    solutions[part] = [...limited(solutions[part], config.eval.max_samples, data, rankOf)];
  if (solutions.train.length === 0) throw nothingToTrainOn(data);
  const summary = summarizeTrainingData({
    train: solutions.train.map((solution) => summarized('train', solution)),
    validation: solutions.validation.map((solution) => summarized('validation', solution)),
    test: solutions.test.map((solution) => summarized('test', solution)),
  });
  return { given: { solutions }, summary, reports, close() {} };
}

function asRecord({ problem, steps }: SourceSolution) {
  return { problem, steps: steps.map((text) => ({ text })) };
}

/** Steps have no verdicts here, so none is counted as right or wrong. */
function summarized(
  part: Part,
  { problem, steps }: { readonly problem: string; readonly steps: readonly unknown[] },
): SummarizedSolution {
  // Only held-out problems are ever shown.
  const text = () => (part === 'train' ? '' : problem);
  return { key: problemKey(problem), labels: steps.map(() => null), text };
}
