// The paths that a configuration names, found here or fetched from the hub.
import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { adapterDirectory } from '../config/adapter.js';
import { ConfigError } from '../config/error.js';
import type { Locate } from '../config/issues.js';
import type { FrameConfig } from '../config/schema.js';
import type { Part } from '../data/split.js';
import { type TrainingFile, trainingFiles } from '../data/training-files.js';
import { fileKind } from '../files/kind.js';
import { orNearFile } from '../files/near-file.js';
import { HubError } from '../hub/error.js';
import { type HubId, parseHubId } from '../hub/hub-id.js';
import { resolveHubData, resolveHubModel, resolveHubTokenizer } from '../hub/resolve.js';
import type { SnapshotOptions } from '../hub/snapshot.js';
import { describedNames, isShipped, judgeBase, packageNames, shippedNames } from '../models/base.js';
import { isGguf } from '../models/gguf.js';
import { nearestName } from '../native/nearest.js';
import { typedCommand } from '../native/typed-command.js';

export interface PathOptions extends SnapshotOptions {
  readonly cwd?: string;
  /** false: download of a model only the files that tell its size. */
  readonly weights?: boolean;
}

/**
 * The configuration with every path absolute, so that a run can be resumed from another directory. A value that is not
 * an existing path and may be a hub id is downloaded into the Hugging Face cache and replaced by its path there.
 *
 * @throws ConfigError, with its location, for a path that does not exist; HubError if the hub cannot be used
 */
export async function resolveInputs<Config extends FrameConfig>(
  config: Config,
  locate: Locate,
  options: PathOptions = {},
): Promise<Config> {
  const { cwd = process.cwd(), weights: _, ...hub } = options;
  const data = { ...config.data };
  const findData = (key: readonly (string | number)[], path: string, part: Part) =>
    found(key, path, cwd, locate, (id) => resolveHubData(id, part, hub));
  for (const part of ['validation', 'test'] as const)
    if (data[part] !== undefined) data[part] = await findData(['data', part], data[part], part);
  if (typeof data.train === 'string') data.train = await findData(['data', 'train'], data.train, 'train');
  else if (data.train !== undefined) {
    const files: TrainingFile[] = [];
    for (const [i, file] of trainingFiles(data.train).entries())
      files.push({ ...file, path: await findData(['data', 'train', i], file.path, 'train') });
    data.train = files;
  }
  const [first] = trainingFiles(data.train);
  const beside = first && dirname(first.path);
  const model = await resolveModel(config.model, locate, { ...options, beside });
  if (model.adapter !== undefined)
    model.adapter = adapterDirectory(model.adapter, locate(['model', 'adapter']), cwd);
  const run = { ...config.run, output_dir: resolve(cwd, config.run.output_dir) };
  return { ...config, data, model, run };
}

/**
 * Resolves the paths of the model alone.
 *
 * @param options.beside a folder in which, or above which, the tokenizer may lie
 */
export async function resolveModel<Model extends Pick<FrameConfig['model'], 'base' | 'tokenizer'>>(
  given: Model,
  locate: Locate,
  {
    cwd = process.cwd(),
    weights = true,
    beside,
    ...hub
  }: PathOptions & { readonly beside?: string | undefined } = {},
): Promise<Model> {
  const model = { ...given };
  if (model.tokenizer !== 'base' && model.tokenizer !== 'bytes' && !isShipped(model.tokenizer)) {
    model.tokenizer =
      localPath(cwd, model.tokenizer) ??
      (beside === undefined ? undefined : findUpwards(beside, model.tokenizer)) ??
      (await found(['model', 'tokenizer'], model.tokenizer, cwd, locate, (id) =>
        resolveHubTokenizer(id, hub),
      ));
    refuseFile(['model', 'tokenizer'], model.tokenizer, locate);
  }
  if (typeof model.base === 'string' && !isShipped(model.base)) {
    const tokenizer = model.tokenizer === 'base';
    model.base = await found(['model', 'base'], model.base, cwd, locate, (id) =>
      resolveHubModel(id, { ...hub, tokenizer, weights }),
    );
    refuseFile(['model', 'base'], model.base, locate);
    model.base = modelOfRun(model.base, locate);
  }
  return model;
}

/** Models and tokenizers are directories. */
function refuseFile(key: readonly string[], path: string, locate: Locate): void {
  if (!isGguf(path) && fileKind(path) === 'file')
    throw new ConfigError(
      `${locate(key)}: ${path} is a file; name ${key[1] === 'base' ? 'the directory of a model, or a .gguf file' : 'the directory of a tokenizer'}`,
    );
}

/** The model's folder in a run that trained every weight; any other path unchanged. */
function modelOfRun(base: string, locate: Locate): string {
  const holds = (name: string) => existsSync(join(base, name));
  if (isGguf(base) || holds('config.json')) return base;
  if (holds('adapter_config.json'))
    throw new ConfigError(
      `${locate(['model', 'base'])}: ${base} is an adapter, not a model; name the model that it was trained on`,
    );
  if (!holds('config.yaml'))
    throw new ConfigError(
      `${locate(['model', 'base'])}: ${base} is no model: it has no config.json; name a model directory, a hub id or one of ${shippedNames().join(', ')}`,
    );
  if (holds('model/config.json')) return join(base, 'model');
  throw new ConfigError(
    `${locate(['model', 'base'])}: ${base} is a run with ${holds('adapter') ? 'an adapter, not a whole model' : 'no model yet'}; ` +
      (holds('adapter')
        ? `put it into its base with ${typedCommand(`merge BASE ${join(base, 'adapter')} OUT`)} and name OUT`
        : `let it end first: ${typedCommand(`run --resume ${base}`)}`),
  );
}

/** Resolves data files alone: a path or pattern, or a hub id, of which `part` is chosen. */
export function resolveData(
  path: string,
  part: Part,
  locate: Locate,
  { cwd = process.cwd(), ...hub }: PathOptions = {},
): Promise<string> {
  return found(['data', part], path, cwd, locate, (id) => resolveHubData(id, part, hub));
}

/** A suggestion of a similar name in `folder`. */
function besidesIn(folder: string, path: string): string {
  const nearest = nearestName(basename(path), readdirSync(folder));
  return nearest === undefined ? '' : `did you mean ${join(dirname(path), nearest)}? Otherwise, `;
}

/** The path, absolute, or what `fetch` makes of a hub id. */
async function found(
  key: readonly (string | number)[],
  path: string,
  cwd: string,
  locate: Locate,
  fetch: (id: HubId) => Promise<string>,
): Promise<string> {
  const local = localPath(cwd, path);
  if (local !== undefined) return local;
  // The key of a recipe would mean nothing to the user of a command's own option or argument.
  const place = locate(key);
  const ofRecipe = place.includes(':') || place.startsWith('--set ');
  const here = `${ofRecipe ? `${key.join('.')} leads nowhere: ` : ''}there is no ${path} (looked for from ${cwd})`;
  const id = parseHubId(path);
  if (id === undefined) throw new ConfigError(`${locate(key)}: ${here}${hint(key, path, cwd)}`);
  // A misspelt path is never sent to the hub: only a clear hub id is.
  const owner = id.repo.split('/', 1)[0] as string;
  if (path === id.repo && existsSync(resolve(cwd, owner))) {
    throw new ConfigError(
      `${locate(key)}: ${here}; ${besidesIn(resolve(cwd, owner), path)}as ${owner} is a folder here, write ${path}@main if you mean the hub`,
    );
  }
  return fetch(id).catch((error: unknown) => {
    if (!(error instanceof HubError)) throw error;
    if (error.kind === 'missing') throw new ConfigError(`${locate(key)}: ${here}, and ${error.message}`);
    if (error.kind === 'refused') throw error;
    // A mistyped path looks like a hub id.
    throw new HubError(error.kind, `${locate(key)}: ${here}; on the hub: ${error.message}`, { cause: error });
  });
}

/** A suggestion of another name: a model of the package with a similar name, or a model that has a tokenizer. */
function hint([section, name]: readonly (string | number)[], path: string, cwd: string): string {
  if (section !== 'model') return orNearFile(path, cwd);
  const under = judgeBase(path);
  if (under !== undefined)
    return `; in the package, ${path} is an adapter, a judge on ${under}: as a base take ${under}`;
  const nearest = nearestName(path, packageNames());
  if (nearest !== undefined) return `; did you mean ${nearest}?`;
  if (name === 'base') return `; the package has ${describedNames()}`;
  return '; name a directory with tokenizer.json, or the hub id of a model that has it, such as Qwen/Qwen2.5-0.5B';
}

/** The absolute path if it exists; for a pattern, if its folder exists. */
function localPath(cwd: string, path: string): string | undefined {
  const absolute = resolve(cwd, path);
  const isThere = existsSync(basename(absolute).includes('*') ? dirname(absolute) : absolute);
  return isThere ? absolute : undefined;
}

function findUpwards(start: string, path: string): string | undefined {
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, path))) return join(folder, path);
    if (dirname(folder) === folder) return undefined;
  }
}

/**
 * The same configuration with absolute paths at these dotted keys; at keys of `models`, which may be names, only where
 * the path exists.
 */
export function withAbsolutePaths<Config extends object>(
  config: Config,
  { paths = [], models = [] }: Partial<Readonly<Record<'paths' | 'models', readonly string[]>>>,
  cwd = process.cwd(),
): Config {
  const copy = structuredClone(config);
  for (const key of [...paths, ...models]) {
    const sections = key.split('.');
    const last = sections.pop() as string;
    let section = copy as Record<string, unknown> | undefined;
    for (const name of sections) section = section?.[name] as Record<string, unknown> | undefined;
    const text = section?.[last];
    if (section === undefined || typeof text !== 'string') continue;
    const path = resolve(cwd, text);
    if (paths.includes(key) || existsSync(path)) section[last] = path;
  }
  return copy;
}
