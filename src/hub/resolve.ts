/** Resolves hub ids to local paths: downloads the needed files into the Hugging Face cache. */
import { join } from 'node:path';
import { readModelConfig } from '../architectures/table.js';
import type { Part } from '../data/split.js';
import { shardNames } from '../weights/checkpoint.js';
import { pathOf, selectDataFiles } from './data-files.js';
import type { HubId } from './hub-id.js';
import { layoutOf, modelConfigFiles, tokenizerFiles, weightFiles } from './model-files.js';
import { describe } from './repository.js';
import { fetchSnapshot, type SnapshotOptions } from './snapshot.js';

/**
 * Downloads the directory of a model: config.json, generation config, weights and optionally the tokenizer. The
 * configuration is read before the weights are downloaded, so that an unsupported model costs no download; with
 * `weights: false` no weights are downloaded.
 *
 * @throws HubError if the download fails; what `readModelConfig` throws
 */
export async function resolveHubModel(
  id: HubId,
  {
    tokenizer,
    weights = true,
    ...options
  }: SnapshotOptions & { readonly tokenizer: boolean; readonly weights?: boolean },
): Promise<string> {
  const what = describe('model', id);
  const small = (paths: readonly string[]) => [
    ...modelConfigFiles(paths, what),
    ...(tokenizer ? tokenizerFiles(paths, what) : []),
  ];
  const { directory, commit, paths, all } = await fetchSnapshot('model', id, small, options);
  readModelConfig(directory);
  if (!weights) return directory;
  const { index } = layoutOf(all, what);
  const shards = paths.includes(index) ? shardNames(join(directory, index)) : undefined;
  const pinned = { ...id, revision: commit };
  await fetchSnapshot('model', pinned, (files) => weightFiles(files, shards, what), options);
  return directory;
}

/** The directory of a tokenizer's files. Throws HubError. */
export async function resolveHubTokenizer(id: HubId, options: SnapshotOptions = {}): Promise<string> {
  const what = describe('model', id);
  return (await fetchSnapshot('model', id, (paths) => tokenizerFiles(paths, what), options)).directory;
}

/**
 * The path of the data files of `id` for a part of the data: a file, or a pattern with `*` for several.
 *
 * @throws HubError if the download fails or the selection is ambiguous
 */
export async function resolveHubData(id: HubId, part: Part, options: SnapshotOptions = {}): Promise<string> {
  const what = describe('dataset', id);
  const { selection } = id;
  const choose = (paths: readonly string[]) => {
    const chosen = selectDataFiles(paths, { part, what, ...(selection === undefined ? {} : { selection }) });
    pathOf('', chosen, { all: paths, what });
    return chosen;
  };
  const { directory, paths, all } = await fetchSnapshot('dataset', id, choose, options);
  return pathOf(directory, paths, { all, what });
}
