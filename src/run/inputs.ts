// What a configuration names and a run reads: files, the tokenizer, and the records of each part of the data.
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ConfigError } from '../config/error.js';
import type { Locate } from '../config/issues.js';
import type { DataConfig, ModelConfig, RunConfig } from '../config/schema.js';
import { arithmeticRecords } from '../data/arithmetic.js';
import { DataError } from '../data/data-error.js';
import { type LoadReport, loadRecords } from '../data/load.js';
import { normalizeProblem, type StepRecord, type VerdictSample, verdictSamples } from '../data/record.js';
import { PARTS, type Part, splitter, takeSamples } from '../data/split.js';
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
 * Reads or generates the records that `data` names and divides them. A file of its own for validation or test takes
 * that share out of the split of the training file. Throws DataError where a file is unusable or training gets nothing.
 */
export async function configuredRecords(data: DataConfig): Promise<ConfiguredRecords> {
  const parts: Record<Part, StepRecord[]> = { train: [], validation: [], test: [] };
  const reports: LoadReport[] = [];
  const read = async function* (path: string) {
    const { records, report } = loadRecords(path, loadOptions(data));
    reports.push(report);
    yield* records;
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
  for await (const record of divided) {
    for (const [part, share] of divide(record, data, partOf)) parts[part].push(share);
  }
  for (const part of ['validation', 'test'] as const) {
    const path = data[part];
    if (path === undefined) continue;
    for await (const record of read(path)) parts[part].push(record);
  }
  for (const part of PARTS) parts[part] = parts[part].flatMap((record) => firstSteps(record, data.max_steps));
  const wanted = data.max_samples === 'all' ? parts.train.length : data.max_samples;
  parts.train = chooseRecords(parts.train, wanted, data.seed);
  if (parts.train.length === 0) {
    throw new DataError('file', `${data.train ?? 'the generator'} gives no solution for training`);
  }
  return { parts, reports };
}

/** `count` of `records`, the same ones for the same seed whatever else is in the data, in their order. */
export function chooseRecords(records: readonly StepRecord[], count: number, seed: number): StepRecord[] {
  const solutions = records.map(
    ({ problem, steps }): VerdictSample => ({
      problem,
      steps: steps.map((step) => step.text),
      label: 1,
      group: normalizeProblem(problem),
    }),
  );
  const kept = new Set(takeSamples(solutions, count, seed));
  return records.filter((_, i) => kept.has(solutions[i]!));
}

function loadOptions({ source, neutral, on_bad_row, prm800k }: DataConfig) {
  if (source === 'arithmetic') throw new RangeError('generated problems are not read from a file');
  return { ...prm800k, source, neutral, on_bad_row };
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
