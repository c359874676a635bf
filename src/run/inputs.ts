// What a configuration names and a run reads: files, the tokenizer, and the records of each part of the data.
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ConfigError } from '../config/error.js';
import type { Locate } from '../config/issues.js';
import type { DataConfig, ModelConfig, RunConfig } from '../config/schema.js';
import { arithmeticRecords } from '../data/arithmetic.js';
import { chooseToTrain } from '../data/balance.js';
import { DataError } from '../data/data-error.js';
import { type LoadReport, loadRecords } from '../data/load.js';
import { type StepRecord, verdictSamples } from '../data/record.js';
import { PARTS, type Part, sampleRanks, splitter } from '../data/split.js';
import { HubError } from '../hub/error.js';
import { type HubId, parseHubId } from '../hub/hub-id.js';
import { resolveHubData, resolveHubModel, resolveHubTokenizer } from '../hub/resolve.js';
import type { SnapshotOptions } from '../hub/snapshot.js';
import { byteTokenizer } from '../tokenizer/byte.js';
import { loadTokenizer } from '../tokenizer/load.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

/**
 * The configuration with every path absolute, so that a run can be continued from another directory. What is no path here
 * and may be a hub id is fetched into the Hugging Face cache, and the path there takes its place. `weights: false` fetches
 * of a model only what says how large it is.
 *
 * @throws ConfigError, with the place, for what leads nowhere; HubError where the hub cannot be used
 */
export async function resolveInputs<Config extends RunConfig>(
  config: Config,
  locate: Locate,
  {
    cwd = process.cwd(),
    weights = true,
    ...hub
  }: SnapshotOptions & { readonly cwd?: string; readonly weights?: boolean } = {},
): Promise<Config> {
  const found = async (
    key: readonly string[],
    path: string,
    fetch: (id: HubId) => Promise<string>,
  ): Promise<string> => {
    const local = localPath(cwd, path);
    if (local !== undefined) return local;
    const here = `${key.join('.')} leads nowhere: there is no ${path} (looked for from ${cwd})`;
    const id = parseHubId(path);
    if (id === undefined) throw new ConfigError(`${locate(key)}: ${here}`);
    // A misspelt path is nobody's business: only what is clearly meant for the hub goes there.
    const owner = id.repo.split('/', 1)[0] as string;
    if (path === id.repo && existsSync(resolve(cwd, owner))) {
      throw new ConfigError(
        `${locate(key)}: ${here}; as ${owner} is a folder here, write ${path}@main if you mean the hub`,
      );
    }
    return fetch(id).catch((error: unknown) => {
      if (!(error instanceof HubError)) throw error;
      if (error.kind === 'missing') throw new ConfigError(`${locate(key)}: ${here}, and ${error.message}`);
      if (error.kind === 'refused') throw error;
      throw new HubError(error.kind, `${key.join('.')} ${path}: ${error.message}`, { cause: error });
    });
  };
  const data = { ...config.data };
  for (const part of PARTS) {
    if (data[part] === undefined) continue;
    data[part] = await found(['data', part], data[part], (id) => resolveHubData(id, part, hub));
  }
  const model = { ...config.model };
  if (model.tokenizer !== 'base' && model.tokenizer !== 'bytes') {
    const beside = data.train === undefined ? undefined : findUpwards(dirname(data.train), model.tokenizer);
    const here = localPath(cwd, model.tokenizer);
    model.tokenizer =
      here ??
      beside ??
      (await found(['model', 'tokenizer'], model.tokenizer, (id) => resolveHubTokenizer(id, hub)));
  }
  if (typeof model.base === 'string' && model.base !== 'embedded') {
    const tokenizer = model.tokenizer === 'base';
    model.base = await found(['model', 'base'], model.base, (id) =>
      resolveHubModel(id, { ...hub, tokenizer, weights }),
    );
  }
  const run = { ...config.run, output_dir: resolve(cwd, config.run.output_dir) };
  return { ...config, data, model, run };
}

/** The absolute path where something is there; of a pattern, where its folder is. */
function localPath(cwd: string, path: string): string | undefined {
  const absolute = resolve(cwd, path);
  const isThere = existsSync(basename(absolute).includes('*') ? dirname(absolute) : absolute);
  return isThere ? absolute : undefined;
}

/** The tokenizer that `section` names. `base` is the one beside the base model. */
export async function configuredTokenizer(model: ModelConfig): Promise<Tokenizer> {
  if (model.tokenizer === 'bytes') return byteTokenizer();
  if (model.tokenizer !== 'base') return loadTokenizer(model.tokenizer);
  if (typeof model.base !== 'string')
    throw new DataError('tokenizer', 'a freshly initialised model has no tokenizer');
  return model.base === 'embedded' ? byteTokenizer() : loadTokenizer(model.base);
}

/** The records of each part, and what happened while they were read. */
export interface ConfiguredRecords {
  readonly parts: Readonly<Record<Part, readonly StepRecord[]>>;
  /** One report per file that the configuration names; none for generated problems. */
  readonly reports: readonly LoadReport[];
}

/**
 * Reads or generates the records that `data` names and divides them, as a stream. A file of its own for validation or test
 * takes that share out of the split of the training file. `reports` gets one report per file that the configuration names,
 * complete once the stream has ended. Throws DataError where a file is unusable.
 */
export async function* dividedRecords(
  data: DataConfig,
  reports: LoadReport[] = [],
): AsyncGenerator<{ readonly part: Part; readonly record: StepRecord }> {
  const read = (path: string) => {
    const { records, report } = readRecords(data, path);
    reports.push(report);
    return records;
  };
  const [train, validation, test] = data.split;
  const shares = [
    train,
    data.validation === undefined ? validation : 0,
    data.test === undefined ? test : 0,
  ] as const;
  const partOf = splitter({ seed: data.seed, split: shares, split_unit: data.split_unit });
  const divided =
    data.source === 'arithmetic'
      ? arithmeticRecords({ ...data.arithmetic, seed: data.seed })
      : read(data.train ?? '');
  for await (const whole of divided) {
    for (const [part, share] of divide(whole, data, partOf)) {
      for (const record of firstSteps(share, data.max_steps)) yield { part, record };
    }
  }
  for (const part of ['validation', 'test'] as const) {
    const path = data[part];
    if (path === undefined) continue;
    for await (const whole of read(path)) {
      for (const record of firstSteps(whole, data.max_steps)) yield { part, record };
    }
  }
}

/**
 * The same in memory, the training part as it is trained on: at most `max_samples` solutions, classes balanced. Throws
 * DataError also where training gets nothing.
 */
export async function configuredRecords(data: DataConfig): Promise<ConfiguredRecords> {
  const parts: Record<Part, StepRecord[]> = { train: [], validation: [], test: [] };
  const reports: LoadReport[] = [];
  for await (const { part, record } of dividedRecords(data, reports)) parts[part].push(record);
  if (data.max_samples !== 'all' || data.balance !== 'none') parts.train = chosenRecords(parts.train, data);
  if (parts.train.length === 0) throw nothingToTrainOn(data);
  return { parts, reports };
}

export function nothingToTrainOn({ train }: DataConfig): DataError {
  return new DataError('file', `${train ?? 'the generator'} gives no solution for training`);
}

function chosenRecords(records: readonly StepRecord[], data: DataConfig): StepRecord[] {
  const labels = records.map(({ steps }) => steps.map(({ label }) => label));
  const ranksOf = (index: number) => recordRanks(records[index] as StepRecord, data.seed);
  return chooseToTrain(labels, ranksOf, data).map((chosen) => {
    const record = records[chosen.index] as StepRecord;
    return {
      ...record,
      steps: record.steps.map((step, i) => ({ ...step, label: chosen.labels[i] ?? null })),
    };
  });
}

/** The numbers by which a solution and its steps are chosen; see `sampleRanks`. */
export function recordRanks({ problem, steps }: StepRecord, seed: number): number[] {
  return sampleRanks(
    seed,
    problem,
    steps.map(({ text }) => text),
  );
}

/** The records of one path, read as `data` says. */
export function readRecords(data: DataConfig, path: string): ReturnType<typeof loadRecords> {
  const { source, neutral, on_bad_row, prm800k } = data;
  if (source === 'arithmetic') throw new RangeError('generated problems are not read from a file');
  return loadRecords(path, { ...prm800k, source, neutral, on_bad_row });
}

type PartOf = ReturnType<typeof splitter>;

/** The record as each part sees it: whole in one, or, split by sample, with the labels of other parts taken out. */
function divide(record: StepRecord, { split_unit }: DataConfig, partOf: PartOf): [Part, StepRecord][] {
  if (split_unit === 'problem') return [[partOf({ problem: record.problem, steps: [] }), record]];
  const partOfStep = new Map<number, Part>();
  for (const sample of verdictSamples(record)) partOfStep.set(sample.steps.length - 1, partOf(sample));
  return PARTS.filter((part) => [...partOfStep.values()].includes(part)).map((part) => {
    const steps = record.steps.map((step, i) =>
      partOfStep.get(i) === part ? step : { ...step, label: null },
    );
    return [part, { ...record, steps }];
  });
}

/** The record up to `limit` steps; nothing where only its context would be left. */
function firstSteps(record: StepRecord, limit: DataConfig['max_steps']): StepRecord[] {
  if (limit === 'all' || record.steps.length <= limit) return [record];
  return (record.context_steps ?? 0) >= limit ? [] : [{ ...record, steps: record.steps.slice(0, limit) }];
}

function findUpwards(start: string, path: string): string | undefined {
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, path))) return join(folder, path);
    if (dirname(folder) === folder) return undefined;
  }
}
