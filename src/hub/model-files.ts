// Selects the files of a model repository to download.
import { INDEX_FILE, SINGLE_FILE, type WeightsLayout, weightsLayout } from '../weights/checkpoint.js';
import { notOnHub } from './error.js';

/** Files read in addition to the weights; see `readTokenizerFiles`. */
const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'chat_template.jinja',
] as const;

const NAMED_TEMPLATES = /^additional_chat_templates\/[^/]+\.jinja$/;

/** The tokenizer's files. Throws HubError if there is no tokenizer.json. */
export function tokenizerFiles(paths: readonly string[], what: string): readonly string[] {
  if (!paths.includes('tokenizer.json')) {
    const other = paths.includes('tokenizer.model') ? 'only tokenizer.model, which is not read' : 'none';
    throw notOnHub(
      `the ${what} has no tokenizer.json (found ${other}); name a model that has one with model.tokenizer`,
    );
  }
  return paths.filter(
    (path) => (TOKENIZER_FILES as readonly string[]).includes(path) || NAMED_TEMPLATES.test(path),
  );
}

/** The small files that describe the weights. Throws HubError for a repository without a model. */
export function modelConfigFiles(paths: readonly string[], what: string): readonly string[] {
  if (!paths.includes('config.json')) {
    const adapter = paths.includes('adapter_config.json') ? '; it is an adapter, not a base model' : '';
    throw notOnHub(`the ${what} has no config.json${adapter}`);
  }
  const { single, index } = layoutOf(paths, what);
  const description = paths.includes(single) ? [] : [index];
  return ['config.json', ...paths.filter((path) => path === 'generation_config.json'), ...description];
}

/** The layout of the weights. Throws HubError for a repository without them. */
export function layoutOf(paths: readonly string[], what: string): WeightsLayout {
  const layout = weightsLayout((path) => paths.includes(path));
  if (layout !== undefined) return layout;
  throw notOnHub(
    `the ${what} has no ${SINGLE_FILE}, no ${INDEX_FILE} and no pytorch_model.bin; weights in other formats are not read`,
  );
}

/** The weights: one file, or the shards named in the index (undefined if there is none). */
export function weightFiles(
  paths: readonly string[],
  shards: readonly string[] | undefined,
  what: string,
): readonly string[] {
  const { single, index } = layoutOf(paths, what);
  if (shards === undefined) return [single];
  const absent = shards.find((shard) => !paths.includes(shard));
  if (absent === undefined) return shards;
  throw notOnHub(`${index} of the ${what} names ${absent}, which the repository does not have`);
}
