// The model and data for `steptrain eval correction`: those of a run directory, or those given as options.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Locate } from '../../config/issues.js';
import type { DataConfig } from '../../config/schema.js';
import { limited, solutionRank } from '../../data/limit.js';
import { type LoadReport, loadRecords } from '../../data/load.js';
import { type HeldOutNeutral, heldOutRecords } from '../../data/neutral.js';
import { problemKey, problemOverlap, stepKey } from '../../data/overlap.js';
import type { SourceName } from '../../data/sources/source.js';
import type { VerdictPromptOptions } from '../../data/verdict.js';
import type { CorrectionTask, NamedScorer } from '../../eval/correction.js';
import { readEvalReport } from '../../eval/reports/report-file.js';
import { completeRunConfig, configOfRun } from '../../methods/config.js';
import { methodOf, type RunConfig } from '../../methods/table.js';
import { isPretrained } from '../../models/base.js';
import { namedModel, standsOnPretrained } from '../../models/saved.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { RunError } from '../../run/error.js';
import { readMetric } from '../../run/log-file.js';
import { configuredRecords } from '../../run/parts.js';
import { resolveData } from '../../run/paths.js';
import { resolveSaved } from '../../run/resolve-saved.js';
import { noNeutralClass } from '../../scoring/kinds.js';
import { type NeutralScore, settingsOfFiles } from '../../scoring/settings.js';

/** Options for runs and models; undefined: the run's value, or the default. */
export interface CorrectionOptions {
  readonly data?: string | undefined;
  readonly validation?: string | undefined;
  readonly source?: SourceName | 'auto' | undefined;
  readonly maxSamples?: number | 'all' | undefined;
  /** A column of the judged data. */
  readonly by?: string | undefined;
  readonly neutral?: HeldOutNeutral | undefined;
  /** Treatment of neutral steps, for a reward model with a class for them. */
  readonly neutralScore?: NeutralScore | undefined;
  readonly onBadRow?: DataConfig['on_bad_row'] | undefined;
  readonly maxLength?: number | undefined;
  readonly threshold?: 'greedy' | number | undefined;
  readonly unsure?: number | undefined;
  readonly votes?: number | undefined;
  readonly template?: string | undefined;
  readonly positiveWord?: string | undefined;
  readonly negativeWord?: string | undefined;
}

export interface ModelChoice {
  readonly model: string;
  readonly adapter?: string | undefined;
  /** `bytes` or a directory; default: the tokenizer in the model's directory. */
  readonly tokenizer?: string | undefined;
  readonly dtype?: 'f32' | 'bf16' | undefined;
}

/** The trained model of a run on its own test part, or on `data`; its validation part selects the thresholds. */
export async function taskOfRun(directory: string, options: CorrectionOptions): Promise<CorrectionTask> {
  const config = await configOfRun(directory);
  const none = new RunError(`${directory} is a run of method ${config.method}, whose model judges no steps`);
  if (methodOf(config).judge === undefined) throw none;
  const { directory: model, adapter } = await resolveSaved(directory);
  const settings = settingsOfFiles({ model, adapter });
  if (!settings) throw none;
  if (options.neutralScore !== undefined && !('neutral_score' in settings)) throw noNeutralClass(directory);
  const groupBy = options.by !== undefined && options.data === undefined ? { group_by: options.by } : {};
  const source = await configuredRecords({ ...config.data, ...groupBy });
  const given = await readGiven(config, options);
  const { seed } = config.data;
  const { neutral = neutralOf(config, options.neutralScore) } = options;
  const counted = (records: readonly StepRecord[]) => heldOutRecords(records, neutral);
  const judged = given.test
    ? chosen(counted(given.test.records), options.maxSamples ?? 'all', seed)
    : chosenOfRun(counted(source.parts.test), options.maxSamples, config);
  const test = judged.records;
  const labels = source.parts.train.flatMap(({ steps }) => steps.map(({ label }) => label));
  const samples = labels.filter((label) => label !== null).length;
  const positive = labels.filter((label) => label === 1).length;
  const keys = (records: readonly StepRecord[]) => records.map(({ problem }) => problemKey(problem));
  const { same: overlap } = problemOverlap(keys(source.parts.train), keys(test));
  const trained = new Set(source.parts.train.flatMap(({ steps }) => steps.map(stepKey)));
  const seen = test.map(({ steps }) => steps.map((step) => trained.has(stepKey(step))));
  const { data, maxSamples, maxLength, neutral: asked, neutralScore } = options;
  const asTrained = [data, maxSamples, maxLength, asked, neutralScore].every((value) => value === undefined);
  return {
    method: config.method,
    pretrained: isPretrained(config.model.base),
    judge: { source: directory, ...judgedBy(options) },
    test,
    seen: ({ solution, step }) => seen[solution]?.[step] === true,
    validation: given.validation
      ? chosen(counted(given.validation.records), options.maxSamples ?? 'all', seed).records
      : chosenOfRun(counted(source.parts.validation), options.maxSamples, config).records,
    positivePrior: samples > 0 ? positive / samples : 0.5,
    data: {
      source: given.test ? (options.source ?? 'auto') : config.data.source,
      ...countsOf([...source.reports, given.validation?.report, given.test?.report]),
      train_solutions: source.parts.train.length,
      train_steps: samples,
      train_positive_share: samples > 0 ? positive / samples : 0,
      ...judged.described,
    },
    invalidAsWrong: !('eval_verdicts' in config) || config.eval_verdicts.invalid_as_wrong,
    valueLosses: existsSync(join(directory, 'metrics.jsonl'))
      ? readMetric(join(directory, 'metrics.jsonl'), 'value_loss')
      : [],
    warnings: [
      ...judged.notes,
      ...leftOutSentences(given),
      ...(overlap > 0 ? [`${overlap} problems of the judged solutions are also trained on`] : []),
    ],
    earlier:
      asTrained && existsSync(join(directory, 'eval.json'))
        ? await readEvalReport(join(directory, 'eval.json'))
        : undefined,
  };
}

/** A model with a class for neutral steps counts held-out ones as its scores do. */
function neutralOf(config: RunConfig, score: NeutralScore | undefined): HeldOutNeutral {
  const own = methodOf(config).heldOutNeutral?.(config, score);
  return own ?? ('eval_verdicts' in config ? config.eval_verdicts.neutral : 'as_trained');
}

/** The options that override how the judge's run had it judge. */
function judgedBy(options: CorrectionOptions): Omit<NamedScorer, 'source'> {
  const { maxLength, threshold, unsure, votes, neutralScore } = options;
  const locate: Locate = ([, key]) => (key === 'base' ? '--model' : `--${String(key)}`);
  return {
    maxLength,
    threshold,
    unsure,
    votes,
    neutralScore,
    locate,
    ...(isAsked(options) ? { prompt: promptOf(options) } : {}),
  };
}

/** Anything that scores steps, on a file; without validation data no threshold is selected. */
export async function taskOfModel(
  { model, adapter, tokenizer, dtype }: ModelChoice,
  options: CorrectionOptions & { readonly data: string },
): Promise<CorrectionTask> {
  const config = completeRunConfig({
    method: 'sft',
    // The training data only satisfies the schema's checks; the data to judge is read below.
    data: { train: options.data },
  });
  const { test, validation } = await readGiven(config, options);
  const limit = options.maxSamples ?? 'all';
  const counted = (file: ReadFile | undefined) =>
    heldOutRecords(file?.records ?? [], options.neutral ?? 'as_trained');
  const judged = chosen(counted(test), limit, config.data.seed);
  return {
    method: adapter === undefined ? 'model' : 'adapter',
    pretrained: standsOnPretrained(model),
    // A model that no run left is asked in the usual words.
    judge: { source: model, adapter, tokenizer, dtype, prompt: promptOf(options), ...judgedBy(options) },
    test: judged.records,
    validation: chosen(counted(validation), limit, config.data.seed).records,
    positivePrior: undefined,
    data: {
      source: options.source ?? 'auto',
      ...countsOf([validation?.report, test?.report]),
      model,
      ...(adapter === undefined ? {} : { adapter }),
      ...judged.described,
    },
    warnings: [...judged.notes, ...leftOutSentences({ test, validation })],
    invalidAsWrong: true,
  };
}

/** Labelled solutions to calibrate a judge on: of `data` or, absent, the validation part of a run, whose neutral steps count as the run says. */
export async function calibrationTask(
  name: string,
  data: string | undefined,
): Promise<{ readonly records: readonly StepRecord[]; readonly warnings: readonly string[] }> {
  const isRun = namedModel(name).kind === 'run';
  const {
    test,
    validation,
    warnings = [],
  } = isRun || data === undefined
    ? await taskOfRun(name, { data })
    : await taskOfModel({ model: name }, { data });
  return data === undefined ? { records: validation, warnings: [] } : { records: test, warnings };
}

interface ReadFile {
  readonly records: StepRecord[];
  readonly report: LoadReport;
}

/** Resolves paths, locally or on the hub, and reads their rows with the options of the configuration. */
async function readGiven(
  { data }: RunConfig,
  { data: test, validation, source = 'auto', onBadRow, by }: CorrectionOptions,
): Promise<Readonly<Record<'test' | 'validation', ReadFile | undefined>>> {
  const options = { ...data, on_bad_row: onBadRow ?? data.on_bad_row };
  const find = async (part: 'test' | 'validation', path: string | undefined) =>
    path === undefined
      ? undefined
      : resolveData(path, part, () => (part === 'test' ? '--data' : '--validation'));
  const found = { validation: await find('validation', validation), test: await find('test', test) };
  return {
    test: found.test === undefined ? undefined : await readRecords(found.test, source, options, by),
    validation:
      found.validation === undefined ? undefined : await readRecords(found.validation, source, options),
  };
}

async function readRecords(
  path: string,
  source: SourceName | 'auto',
  { prm800k, neutral, on_bad_row, label_threshold }: DataConfig,
  group_by?: string,
): Promise<ReadFile> {
  const { records, report } = loadRecords(path, {
    ...prm800k,
    neutral,
    on_bad_row,
    label_threshold,
    source,
    group_by,
    problems: false,
  });
  const all: StepRecord[] = [];
  for await (const record of records) all.push(record);
  if (all.length === 0) throw new RunError(`${path} gives no solution to judge`);
  return { records: all, report };
}

/** Whether the options ask in other words than the run. */
function isAsked({ template, positiveWord, negativeWord }: CorrectionOptions): boolean {
  return [template, positiveWord, negativeWord].some((value) => value !== undefined);
}

function promptOf({ template, positiveWord, negativeWord }: CorrectionOptions): VerdictPromptOptions {
  return {
    ...(template === undefined ? {} : { template }),
    ...(positiveWord === undefined ? {} : { pos_word: positiveWord }),
    ...(negativeWord === undefined ? {} : { neg_word: negativeWord }),
  };
}

/** The data section of the report, with the counts of everything left out. */
function countsOf(read: readonly (LoadReport | undefined)[]) {
  const reports = read.filter((report) => report !== undefined);
  const skipped = new Map<string, number>();
  for (const report of reports) {
    for (const [reason, count] of report.skipped) skipped.set(reason, (skipped.get(reason) ?? 0) + count);
  }
  return {
    files: reports.flatMap(({ files }) => files),
    ...(skipped.size > 0 ? { skipped_rows: Object.fromEntries(skipped) } : {}),
  };
}

/** A sentence on each file of which rows were skipped. */
function leftOutSentences({ test, validation }: Awaited<ReturnType<typeof readGiven>>): string[] {
  const sentence = (option: string, read: ReadFile | undefined) => {
    const reasons = [...(read?.report.skipped ?? [])];
    const rows = reasons.reduce((sum, [, count]) => sum + count, 0);
    if (rows === 0) return [];
    const why = reasons.map(([reason, count]) => `${reason} ${count}`).join(', ');
    return [
      `${plural(rows, 'row')} of ${option} cannot be read and ${rows === 1 ? 'is' : 'are'} left out (${why})`,
    ];
  };
  return [...sentence('--data', test), ...sentence('--validation', validation)];
}

interface Chosen {
  readonly records: readonly StepRecord[];
  /** The choice of records, for the report and for the reader, where not all were taken. */
  readonly described: Readonly<Record<string, number>>;
  readonly notes: readonly string[];
}

/** All records of a file, or `limit` of them drawn by `seed`. */
function chosen(records: readonly StepRecord[], limit: number | 'all', seed: number): Chosen {
  if (limit === 'all' || records.length <= limit) return { records, described: {}, notes: [] };
  return {
    records: limited(records, limit, { source: 'file', seed }, solutionRank),
    described: { solutions_in_file: records.length, sample_seed: seed },
    notes: [`${limit} of ${records.length} solutions were judged, drawn by data.seed ${seed}`],
  };
}

/** The part of a run's own data that the run itself evaluated on, unless another number is asked for. */
function chosenOfRun(
  records: readonly StepRecord[],
  asked: number | 'all' | undefined,
  { data, eval: { max_samples: limit } }: Pick<RunConfig, 'data' | 'eval'>,
): Chosen {
  if (asked !== undefined) return chosen(records, asked, data.seed);
  return { records: limited(records, limit, data, solutionRank), described: {}, notes: [] };
}
