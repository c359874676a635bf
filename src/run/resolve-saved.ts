// The door for names of models: behind it are directories.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Locate } from '../config/issues.js';
import { baseDirectory } from '../models/base.js';
import { DEFAULT_MODEL, type SavedModel, savedModel, withCard } from '../models/saved.js';
import { refuseClassifier } from '../models/writes-text.js';
import { checkOptions } from '../native/errors.js';
import { typedCommand } from '../native/typed-command.js';
import { type Log, loggingTo } from '../terminal/log.js';
import { isAdapter, noAdapter } from '../weights/adapter.js';
import { RunError } from './error.js';
import { type PathOptions, resolveModel } from './paths.js';
import { checkOwnBase } from './trained-on.js';

export interface ResolveOptions extends PathOptions {
  /** An adapter, or a run with one, on top of the named model. */
  readonly adapter?: string | undefined;
  /** Whether an adapter of another base is accepted. */
  readonly otherBase?: boolean | undefined;
  /**
   * Whether the model must write text. An adapter of a classifier is then refused, except that of a run, which only
   * scores. Default false.
   */
  readonly writes?: boolean | undefined;
  /** `bytes`, a directory or a hub id; default: the model's. */
  readonly tokenizer?: string | undefined;
  /** The name that errors give a key of the section `model`, and `adapter`. */
  readonly locate?: Locate;
}

/**
 * The model that a name means: a run, an adapter, a directory, a GGUF file, a model of the package or a hub id, which is downloaded.
 *
 * @param name undefined: the base of the adapter, else {@link DEFAULT_MODEL}
 * @throws ConfigError where there is nothing of that name, RunError for a run without a model and an adapter of another base
 */
export async function resolveSaved(
  name: string | undefined,
  {
    adapter: given,
    otherBase = false,
    writes = false,
    tokenizer = 'base',
    locate = () => String(name),
    ...paths
  }: ResolveOptions = {},
): Promise<SavedModel> {
  const onTop = given === undefined ? undefined : adapterOf(given, locate);
  const saved = savedModel(name ?? onTop ?? DEFAULT_MODEL);
  if (saved.kind === 'run' && saved.directory === saved.name) throw withoutModel(saved.name);
  const named = { base: saved.directory, tokenizer };
  // Models of the package and bases of adapters have been found already.
  const isFound = tokenizer === 'base' && saved.kind !== 'elsewhere' && saved.kind !== 'model';
  const found = isFound ? named : await resolveModel(named, locate, paths);
  const directory = resolve(baseDirectory(found.base));
  const whole = { ...saved, ...withCard({ directory, adapter: onTop ?? saved.adapter }) };
  if (writes && whole.adapter !== undefined && saved.kind !== 'run') refuseClassifier(whole.adapter);
  if (name !== undefined && onTop !== undefined && !otherBase)
    await checkOwnBase({ adapter: onTop, base: name, directory }, 'use it');
  return tokenizer === 'base' ? whole : { ...whole, tokenizer: found.tokenizer };
}

/**
 * Fetches a model of the hub into Hugging Face's cache where it is not there yet, as the commands do; `HF_TOKEN` and
 * the other variables of huggingface_hub apply.
 *
 * @param name a hub id such as `Qwen/Qwen2.5-0.5B`, with a revision after an `@`; a directory stays as it is
 * @param options `log` takes the progress of the download, which otherwise goes to standard error; `signal` aborts it
 * with its reason,
 *   and leaves only whole files in the cache
 * @returns the directory, which `loadModel` and `model.base` take
 * @throws HubError where the hub cannot be used, ConfigError for an invalid hub id
 */
export async function fetchModel(
  name: string,
  options: { readonly log?: Log | undefined; readonly signal?: AbortSignal | undefined } = {},
): Promise<string> {
  checkOptions('fetchModel', options, { log: true, signal: true });
  const { signal } = options;
  signal?.throwIfAborted();
  const resolved = () => resolveModel({ base: name, tokenizer: 'base' }, () => 'fetchModel', { signal });
  const { base } = await loggingTo(options.log, resolved);
  return baseDirectory(base);
}

/** The adapter of a path, which may be a run. */
function adapterOf(path: string, locate: Locate): string {
  for (const found of [path, join(path, 'adapter')]) if (isAdapter(found)) return found;
  const from = existsSync(path) ? '' : ` (looked for from ${process.cwd()})`;
  throw new RunError(`${locate(['model', 'adapter'])}: ${noAdapter(path)}${from}`);
}

const withoutModel = (run: string) =>
  new RunError(
    `${run} holds neither adapter/ nor model/: its training has not ended; continue with: ${typedCommand(`run --resume ${run}`)}`,
  );
