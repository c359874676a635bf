// The paths that a configuration names, found here or fetched from the hub.
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ConfigError } from '../config/error.js';
import type { Locate } from '../config/issues.js';
import type { FrameConfig } from '../config/schema.js';
import { PARTS } from '../data/split.js';
import { HubError } from '../hub/error.js';
import { type HubId, parseHubId } from '../hub/hub-id.js';
import { resolveHubData, resolveHubModel, resolveHubTokenizer } from '../hub/resolve.js';
import type { SnapshotOptions } from '../hub/snapshot.js';

/**
 * The configuration with every path absolute, so that a run can be resumed from another directory. A value that is not
 * an existing path and may be a hub id is downloaded into the Hugging Face cache and replaced by its path there.
 * `weights: false` downloads of a model only the files that tell its size.
 *
 * @throws ConfigError, with its location, for a path that does not exist; HubError if the hub cannot be used
 */
export async function resolveInputs<Config extends FrameConfig>(
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
    // Never send a misspelt path to the hub: only what is clearly a hub id.
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
