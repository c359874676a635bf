// Selects the files of a model repository to download.
import { INDEX_FILE, SINGLE_FILE } from '../weights/checkpoint.js';
import { conversionCommand, PICKLES } from '../weights/pickles.js';
import { HubError } from './error.js';

/** The files read besides the weights; see `readTokenizerFiles`. */
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
    throw new HubError(
      'missing',
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
    throw new HubError('missing', `the ${what} has no config.json${adapter}`);
  }
  if (!paths.includes(SINGLE_FILE) && !paths.includes(INDEX_FILE)) {
    const pickle = paths.find((path) => PICKLES.test(path));
    if (pickle !== undefined)
      throw new HubError(
        'missing',
        `the ${what} has its weights in ${pickle} alone, whose format can run code and is never read; convert it with ` +
          `transformers and name the new folder: ${conversionCommand(what.replace(/^model /, '').replace(/@.*/, ''))}`,
      );
    throw new HubError(
      'missing',
      `the ${what} has no ${SINGLE_FILE} and no ${INDEX_FILE}; weights in other formats are not read`,
    );
  }
  const index = paths.includes(SINGLE_FILE) ? [] : [INDEX_FILE];
  return ['config.json', ...paths.filter((path) => path === 'generation_config.json'), ...index];
}

/** The weights: one file, or the shards named in the index (undefined if there is none). */
export function weightFiles(
  paths: readonly string[],
  shards: readonly string[] | undefined,
  what: string,
): readonly string[] {
  if (shards === undefined) return [SINGLE_FILE];
  const absent = shards.find((shard) => !paths.includes(shard));
  if (absent === undefined) return shards;
  throw new HubError(
    'missing',
    `${INDEX_FILE} of the ${what} names ${absent}, which the repository does not have`,
  );
}
