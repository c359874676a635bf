/** Whether two names mean one model, by the content of its files. */
import { existsSync, readlinkSync, realpathSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { contentHash } from '../files/content-hash.js';
import { attempt } from '../native/attempt.js';
import { GGUF_FILE } from '../weights/gguf/checkpoint.js';
import { baseDirectory, shippedDirectory } from './base.js';
import { isGguf } from './gguf.js';
import { savedBase } from './saved.js';

/**
 * Whether the named model is the one in `directory`; undefined where it is not here. Reads all weights if the two lie in different
 * directories.
 */
export async function isSameModel(named: string, directory: string): Promise<boolean | undefined> {
  const other = isGguf(named) ? baseDirectory(named) : (shippedDirectory(named) ?? named);
  if (!existsSync(join(other, 'config.json'))) return undefined;
  return realpathSync(other) === realpathSync(directory) || (await hasSameFiles(other, directory));
}

/** The base that an adapter names, where that is here and is another model than the one in `directory`; else undefined. */
export async function foreignBaseOf(adapter: string, directory: string): Promise<string | undefined> {
  const saved = savedBase(adapter);
  const named = saved && ggufOf(saved);
  return named !== undefined && (await isSameModel(named, directory)) === false ? named : undefined;
}

/** The GGUF file that a directory in the cache was made from, which may be gone; any other path unchanged. */
export function ggufOf(path: string): string {
  return attempt(() => {
    const file = readlinkSync(join(path, GGUF_FILE));
    // Links in the hub's cache are relative, to files without a name.
    return isAbsolute(file) ? file : path;
  }, path);
}

/** A copy of a model elsewhere is the same model. Sizes are compared first, since weights take long to read. */
async function hasSameFiles(one: string, other: string): Promise<boolean> {
  const [names, others] = await Promise.all([one, other].map(filesOf));
  if (!isDeepStrictEqual(names, others)) return false;
  for (const [name] of names as [string, number][])
    if ((await contentHash(join(one, name))) !== (await contentHash(join(other, name)))) return false;
  return true;
}

async function filesOf(directory: string): Promise<[string, number][]> {
  const names = (await readdir(directory)).filter(
    (name) => name === GGUF_FILE || /^config\.json$|\.(safetensors|bin)$/.test(name),
  );
  return Promise.all(
    names
      .sort()
      .map(async (name): Promise<[string, number]> => [name, (await stat(join(directory, name))).size]),
  );
}
