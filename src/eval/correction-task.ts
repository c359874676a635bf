// What `steptrain eval correction` judges: the model and data of a run directory, or those that options name.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseRunConfig } from '../config/load.js';
import type { DataConfig, PromptConfig } from '../config/schema.js';
import { type LoadReport, loadRecords } from '../data/load.js';
import type { StepRecord } from '../data/record.js';
import type { SourceName } from '../data/sources/source.js';
import { problemOverlap } from '../data/split.js';
import { StatisticsCounter } from '../data/statistics.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { configuredRecords, configuredTokenizer } from '../run/inputs.js';
import { readFigure } from '../run/log-file.js';
import { byteTokenizer } from '../tokenizer/byte.js';
import { loadTokenizer } from '../tokenizer/load.js';
import { baseDirectory } from '../train/trainee.js';
import type { CorrectionTask, Judge } from './correction.js';
import { readEvalReport } from './report-file.js';

/** Options of the command that apply to runs and models alike; undefined: as the run has it, or the usual. */
export interface CorrectionOptions {
  readonly data?: string | undefined;
  readonly validation?: string | undefined;
  readonly source?: SourceName | 'auto' | undefined;
  readonly maxSamples?: number | undefined;
  readonly maxLength?: number | undefined;
  readonly threshold?: 'greedy' | number | undefined;
  readonly template?: string | undefined;
  readonly positiveWord?: string | undefined;
  readonly negativeWord?: string | undefined;
}

export interface ModelChoice {
  readonly model: string;
  readonly adapter?: string | undefined;
  /** `bytes` or a directory; default: beside the model. */
  readonly tokenizer?: string | undefined;
  readonly dtype?: 'f32' | 'bf16' | undefined;
}

/** The trained model of a run on its own test part, or on `data`; its validation part chooses thresholds. */
export async function taskOfRun(directory: string, options: CorrectionOptions): Promise<CorrectionTask> {
  const { config } = parseRunConfig(await readRunConfig(directory), { name: join(directory, 'config.yaml') });
  if (!('prompt' in config))
    throw new RunError(`${directory} is a run of method ${config.method}, whose model judges no steps`);
  const { parts, reports } = await configuredRecords(config.data);
  const read = (path: string) => readRecords(path, options.source, config.data);
  const given = options.data === undefined ? undefined : await read(options.data);
  const validation = options.validation === undefined ? undefined : await read(options.validation);
  const most = options.maxSamples ?? config.eval.max_samples;
  const test = limited(given?.records ?? parts.test, most);
  const trained = new StatisticsCounter();
  for (const record of parts.train) trained.add(record);
  const { samples, positive } = trained.result();
  const overlap = problemOverlap(parts.train, test).count;
  const asTrained =
    options.data === undefined && options.maxSamples === undefined && options.maxLength === undefined;
  return {
    method: config.method,
    judge: {
      ...trainedModel(directory, config.model.base),
      dtype: config.model.dtype,
      tokenizer: await configuredTokenizer(config.model),
      prompt: promptOf(options, config.prompt),
      maxLength: options.maxLength ?? config.data.max_length,
      threshold: options.threshold ?? config.eval.threshold,
    },
    test,
    validation: limited(validation?.records ?? parts.validation, most),
    positivePrior: samples > 0 ? positive / samples : 0.5,
    data: {
      source: given ? (options.source ?? 'auto') : config.data.source,
      ...countsOf([...reports, ...(validation ? [validation.report] : []), ...(given ? [given.report] : [])]),
      train_solutions: parts.train.length,
      train_steps: samples,
      train_positive_share: samples > 0 ? positive / samples : 0,
    },
    invalidAsWrong: config.eval.invalid_as_wrong,
    bootstrap: { seed: config.run.seed },
    valueLosses: existsSync(join(directory, 'metrics.jsonl'))
      ? readFigure(join(directory, 'metrics.jsonl'), 'value_loss')
      : [],
    warnings: overlap > 0 ? [`${overlap} problems of the judged solutions are also trained on`] : [],
    earlier:
      asTrained && existsSync(join(directory, 'eval.json'))
        ? await readEvalReport(join(directory, 'eval.json'))
        : undefined,
  };
}

/** Any model, with or without an adapter, on a file; without validation data no threshold is chosen. */
export async function taskOfModel(
  { model, adapter, tokenizer, dtype }: ModelChoice,
  options: CorrectionOptions & { readonly data: string },
): Promise<CorrectionTask> {
  const directory = baseDirectory(model);
  const test = await readRecords(options.data, options.source);
  const validation =
    options.validation === undefined ? undefined : await readRecords(options.validation, options.source);
  const most = options.maxSamples ?? 'all';
  return {
    method: adapter === undefined ? 'model' : 'adapter',
    judge: {
      model: directory,
      adapter,
      dtype: dtype ?? 'f32',
      tokenizer: await tokenizerOf(model, tokenizer),
      prompt: promptOf(options),
      maxLength: options.maxLength ?? 1024,
      threshold: options.threshold ?? 'greedy',
    },
    test: limited(test.records, most),
    validation: limited(validation?.records ?? [], most),
    positivePrior: undefined,
    data: {
      source: options.source ?? 'auto',
      ...countsOf([...(validation ? [validation.report] : []), test.report]),
      model,
      ...(adapter === undefined ? {} : { adapter }),
    },
    invalidAsWrong: true,
  };
}

/** Where a run left its model: an adapter on its base, or a whole model. */
function trainedModel(directory: string, base: unknown): Pick<Judge, 'model' | 'adapter'> {
  const adapter = join(directory, 'adapter');
  if (typeof base === 'string' && existsSync(adapter)) return { model: baseDirectory(base), adapter };
  const model = join(directory, 'model');
  if (existsSync(model)) return { model, adapter: undefined };
  throw new RunError(
    `${directory} holds neither adapter/ nor model/: its training has not ended; go on with: steptrain run --resume ${directory}`,
  );
}

function promptOf(
  { template, positiveWord, negativeWord }: CorrectionOptions,
  configured: Partial<PromptConfig> = {},
): Judge['prompt'] {
  return {
    ...configured,
    ...(template === undefined ? {} : { template }),
    ...(positiveWord === undefined ? {} : { pos_word: positiveWord }),
    ...(negativeWord === undefined ? {} : { neg_word: negativeWord }),
  };
}

async function readRecords(
  path: string,
  source: CorrectionOptions['source'] = 'auto',
  configured?: Pick<DataConfig, 'neutral' | 'on_bad_row' | 'prm800k'>,
): Promise<{ readonly records: StepRecord[]; readonly report: LoadReport }> {
  const { neutral, on_bad_row } = configured ?? {};
  const { records, report } = loadRecords(path, {
    ...configured?.prm800k,
    ...(neutral === undefined ? {} : { neutral }),
    ...(on_bad_row === undefined ? {} : { on_bad_row }),
    source,
  });
  const all: StepRecord[] = [];
  for await (const record of records) all.push(record);
  if (all.length === 0) throw new RunError(`${path} gives no solution to judge`);
  return { records: all, report };
}

async function tokenizerOf(model: string, named: string | undefined) {
  if (named === 'bytes' || (named === undefined && model === 'embedded')) return byteTokenizer();
  return loadTokenizer(named ?? model);
}

/** What the report says about the files: nothing that was left out goes unmentioned. */
function countsOf(reports: readonly LoadReport[]) {
  const skipped = new Map<string, number>();
  for (const report of reports) {
    for (const [reason, count] of report.skipped) skipped.set(reason, (skipped.get(reason) ?? 0) + count);
  }
  return {
    files: reports.flatMap(({ files }) => files),
    ...(skipped.size > 0 ? { skipped_rows: Object.fromEntries(skipped) } : {}),
  };
}

function limited<T>(records: readonly T[], most: number | 'all'): readonly T[] {
  return most === 'all' ? records : records.slice(0, most);
}
