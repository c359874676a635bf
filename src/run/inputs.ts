// inputs.json: the inputs that a run began with, so that it never silently continues with others.
import { readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { CHANGEABLE } from '../config/changeable.js';
import { dotted } from '../config/dotted.js';
import type { FrameConfig } from '../config/schema.js';
import { parseRecipe } from '../config/source.js';
import { dataFiles } from '../data/files.js';
import { trainingFiles } from '../data/training-files.js';
import { contentHash, sampledHash } from '../files/content-hash.js';
import { isShipped } from '../models/base.js';
import { plural } from '../native/shown.js';
import { runtimeVersion } from '../native/version.js';
import { adapterFiles } from '../weights/adapter.js';
import { weightsLayout } from '../weights/checkpoint.js';
import { RunError } from './error.js';

export const runInputs = z.strictObject({
  /** Every value of the configuration by its dotted key, but paths. */
  config: z.record(z.string(), z.unknown()),
  /** Files by configured path: SHA-256 of data and tokenizer, length of weights and a hash of samples of them, by file name. */
  files: z.record(z.string(), z.record(z.string(), z.string())),
  /** The runtime, as `Node 24.11.0`; earlier versions did not note it. */
  runtime: z.string().optional(),
});
export type RunInputs = Readonly<z.output<typeof runInputs>>;

/** Keys whose content is compared, not their value: files may have been moved. */
const PATHS = new Set([
  'data.train',
  'data.validation',
  'data.test',
  'model.base',
  'model.adapter',
  'model.tokenizer',
]);

/**
 * The mixture of the training files, under names that are no keys of the configuration but values in its list of files.
 */
const MIXTURE = { weights: 'data.train.weight', shares: 'data.train.share' };

/** Reads the files that `config`, whose paths are absolute, names. Throws DataError for missing data. */
export async function readRunInputs(config: FrameConfig): Promise<RunInputs> {
  const train = trainingFiles(config.data.train);
  const files: Record<string, Readonly<Record<string, string>>> = { ...(await dataContent(config.data)) };
  const { base, adapter, tokenizer } = config.model;
  if (typeof base === 'string') files['model.base'] = await modelContent(base);
  // Small enough to be hashed whole.
  if (adapter !== undefined) files['model.adapter'] = await hashes(adapterFiles(adapter));
  if (tokenizer !== 'base' && tokenizer !== 'bytes') files['model.tokenizer'] = await modelContent(tokenizer);
  const values = Object.fromEntries(
    dotted(config).filter(([key]) => !PATHS.has(key) && key !== 'run.output_dir'),
  );
  // The paths may have changed; how the files are mixed may not.
  const weights = train.map(({ weight = 1 }) => weight);
  if (weights.some((weight) => weight !== 1)) values[MIXTURE.weights] = weights;
  const shares = train.map(({ share }) => share);
  if (shares.some((share) => share !== undefined)) values[MIXTURE.shares] = shares;
  return { config: values, files, runtime: runtimeVersion() };
}

/** Hashes of the data files by the key that names them and by their name. Throws DataError for missing data. */
export async function dataContent(
  data: FrameConfig['data'],
): Promise<Readonly<Record<string, Readonly<Record<string, string>>>>> {
  const found: Record<string, Record<string, string>> = {};
  for (const [i, { path }] of trainingFiles(data.train).entries())
    found[i === 0 ? 'data.train' : `data.train.${i}`] = await hashes(await dataFiles(path));
  for (const part of ['validation', 'test'] as const) {
    const path = data[part];
    if (path !== undefined) found[`data.${part}`] = await hashes(await dataFiles(path));
  }
  return found;
}

/** Differences between a resumed run and its beginning, a phrase each. */
export interface AcceptedChanges {
  readonly changed: readonly string[];
  /** Keys that the program did not have when the run began, with their defaults. */
  readonly added: readonly string[];
  /** Keys that the program no longer has, with their former values. */
  readonly gone: readonly string[];
}

/**
 * The changes from `before` to `now` that a resumed run may make.
 *
 * @param options `changeable`: keys that may change; `*` matches any section. `defaults`: this version's values, by
 * key, for keys that
 *   the run's own configuration lacks; see `unnamedValues`. `isKey`: whether this version has a key
 * @throws RunError naming a key or a file that must not change
 */
export function acceptedChanges(
  directory: string,
  before: RunInputs,
  now: RunInputs,
  {
    changeable = CHANGEABLE,
    defaults = () => ({}),
    isKey = () => true,
  }: {
    readonly changeable?: readonly string[];
    readonly defaults?: () => RunInputs['config'];
    readonly isKey?: (key: string) => boolean;
  } = {},
): AcceptedChanges {
  const began = before.config;
  const keys = new Set([...Object.keys(began), ...Object.keys(now.config)]);
  const differing = [...keys].flatMap((key) => {
    const [old, value] = [began[key], now.config[key]].map((given) => JSON.stringify(given));
    return old === value ? [] : [{ key, old, value }];
  });
  const isNew = ({ key }: { readonly key: string }) => !(key in began);
  const given = differing.some(isNew) ? defaults() : {};
  const added = differing.filter((each) => isNew(each) && JSON.stringify(given[each.key]) === each.value);
  // Whoever took it out of config.yaml, as the sentence about an unknown key says, knows that it does not matter.
  const isGone = (key: string) => !isKey(key) && !Object.values(MIXTURE).includes(key);
  const gone = differing.filter(({ key, value }) => value === undefined && isGone(key));
  const changes = differing.filter((each) => !added.includes(each) && !gone.includes(each));
  const textOf = ({ key, old, value }: (typeof changes)[number]) =>
    old === undefined
      ? `${key} is ${value} and was not there`
      : value === undefined
        ? `${key} was ${old} and is gone`
        : `${key} is ${value} and was ${old}`;
  const refused = changes.find(({ key }) => !matchesKey(key, changeable));
  if (refused) {
    throw new RunError(
      `${directory} began with another configuration: ${textOf(refused)}; restore it, or start a new run ` +
        `(a resumed run may change ${changeable.join(', ')})`,
    );
  }
  const listed = otherTrainingFiles(before.files, now.files);
  if (listed) throw new RunError(`${directory} ${listed}; restore data.train, or start a new run`);
  for (const key of new Set([...Object.keys(before.files), ...Object.keys(now.files)])) {
    const reason = difference(before.files[key] ?? {}, now.files[key] ?? {});
    if (reason !== undefined) {
      throw new RunError(
        `${directory} began with other content of ${key}: ${reason}; restore it, or start a new run`,
      );
    }
  }
  return {
    changed: changes.map(textOf),
    added: added.map(({ key, value }) => `${key} ${value}`),
    gone: gone.map(({ key, old }) => `${key} ${old}`),
  };
}

/**
 * The values of a configuration by dotted key that its text does not name: in config.yaml, which is complete when it is written, the
 * defaults of keys that have come since.
 */
export function unnamedValues(text: string, name: string, config: FrameConfig): RunInputs['config'] {
  const named = new Set(dotted(parseRecipe(text, name).value).map(([key]) => key));
  return Object.fromEntries(dotted(config).filter(([key]) => !named.has(key)));
}

/** Whether a dotted key matches one of `patterns`, in which `*` matches any section. */
export function matchesKey(key: string, patterns: readonly string[]): boolean {
  const [, ...rest] = key.split('.');
  return patterns.some((pattern) => pattern === key || pattern === `*.${rest.join('.')}`);
}

/** The difference of a list of training files in number or order; undefined where the difference is within a file. */
function otherTrainingFiles(before: RunInputs['files'], now: RunInputs['files']): string | undefined {
  const [old, current] = [before, now].map((files) =>
    Object.keys(files)
      .filter((key) => /^data\.train(\.\d+)?$/.test(key))
      .map((key) => JSON.stringify(Object.values(files[key] ?? {}))),
  ) as [string[], string[]];
  if (old.length !== current.length) {
    const [were, are] = [old.length, current.length].map((n) => plural(n, 'training file'));
    return `began with ${were}, and data.train names ${are}`;
  }
  const sameFiles = [...old].sort().join() === [...current].sort().join();
  return sameFiles && old.join() !== current.join()
    ? 'began with its training files in another order'
    : undefined;
}

function difference(
  before: Readonly<Record<string, string>>,
  now: Readonly<Record<string, string>>,
): string | undefined {
  const [gone] = Object.keys(before).filter((name) => !(name in now));
  if (gone !== undefined) return `${gone} is missing`;
  const [added] = Object.keys(now).filter((name) => !(name in before));
  if (added !== undefined) return `${added} is new`;
  const [changed] = Object.keys(now).filter((name) => now[name] !== before[name]);
  return changed === undefined ? undefined : `${changed} was changed`;
}

async function hashes(paths: readonly string[]): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const path of paths) found[basename(path)] = await contentHash(path);
  return found;
}

/** Hashes of the small files of a model directory, samples of its weights: hashing tens of GB would delay every start. */
async function modelContent(path: string): Promise<Record<string, string>> {
  if (isShipped(path)) return { [path]: 'of the package' };
  if (!(await stat(path)).isDirectory()) return hashes([path]);
  const found: Record<string, string> = {};
  const names = (await readdir(path)).sort();
  const weights = weightsLayout((name) => names.includes(name))?.ending ?? '.safetensors';
  for (const name of names) {
    const file = join(path, name);
    if (name.endsWith(weights)) found[name] = await sampledHash(file);
    else if (/\.(json|jinja|model|txt)$/.test(name)) found[name] = await contentHash(file);
  }
  return found;
}
