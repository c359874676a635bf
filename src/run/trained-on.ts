/** Finds out whether an adapter was trained on a base, as far as the files here tell. */
import { basename, sep } from 'node:path';
import { parseHubId } from '../hub/hub-id.js';
import { ggufOf, isSameModel } from '../models/same-model.js';
import { savedBase } from '../models/saved.js';
import { warn } from '../terminal/log.js';
import { RunError } from './error.js';

export interface TrainedOn {
  /** The base that the adapter names: a directory, a hub id or a name of the package. */
  readonly named: string | undefined;
  /** `unknown` where the named model is not here and has another name. */
  readonly same: 'yes' | 'no' | 'unknown';
}

/**
 * Compares the base that an adapter names with the one in `directory`: by content where the named model is here, by id
 * where both are of the hub. Reads all weights if the two lie in different directories.
 */
export async function trainedOn(adapter: string, base: string, directory: string): Promise<TrainedOn> {
  const saved = savedBase(adapter);
  const named = saved && ggufOf(saved);
  return {
    named,
    same: named === undefined || named === base ? 'yes' : await compare(named, base, directory),
  };
}

/**
 * The objection to an adapter on a base: a refusal where it was trained on another model, a warning where that is
 * unknown because the named model is not here.
 */
export async function foreignBase(
  adapter: string,
  base: string,
  directory: string,
): Promise<{ readonly refusal?: string; readonly warning?: string }> {
  const given = ggufOf(base);
  const { named, same } = await trainedOn(adapter, given, directory);
  if (same === 'no') return { refusal: `${adapter} was trained on ${named}, and ${given} is another model` };
  if (same === 'yes') return {};
  return {
    warning: `${adapter} was trained on ${named}, which is not here, and ${given} has another name; if it is another model, the result is useless`,
  };
}

/**
 * Warns where the base is unknown, because the model that the adapter names is not here.
 *
 * @param named the adapter, its base as it was given, and the base's directory
 * @param use what is done with the two, such as `merge`
 * @throws RunError for an adapter of another base
 */
export async function checkOwnBase(
  { adapter, base, directory }: Readonly<Record<'adapter' | 'base' | 'directory', string>>,
  use: string,
): Promise<void> {
  const { refusal, warning } = await foreignBase(adapter, base, directory);
  if (refusal !== undefined)
    throw new RunError(`${refusal}; name that one, or ${use} all the same with --other-base`);
  if (warning !== undefined) warn(warning);
}

async function compare(named: string, base: string, directory: string): Promise<TrainedOn['same']> {
  const found = await isSameModel(named, directory);
  if (found !== undefined) return found ? 'yes' : 'no';
  const cached = directory.split(sep).find((part) => part.startsWith('models--'));
  const id = parseHubId(named);
  if (cached !== undefined && id !== undefined)
    return cached === `models--${id.repo.replace('/', '--')}` ? 'yes' : 'no';
  // Directories are moved, and hub ids downloaded to a directory of their name.
  return [base, directory].some((path) => lastName(path) === lastName(named)) ? 'yes' : 'unknown';
}

const lastName = (path: string) => basename(path.replace(/@[^/]*$/, ''));
