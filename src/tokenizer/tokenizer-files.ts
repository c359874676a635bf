import { existsSync, readFileSync } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { badTokenizer, DataError, reasonOf } from '../files/data-error.js';
import { type ChatTemplates, chatTemplatesOf } from './chat-template.js';
import { checkedTokenizer, type TokenizerJson } from './checks.js';
import { withConfiguredTokens } from './configured-tokens.js';

/** A tokenizer's files, as in a Hugging Face model directory. */
export interface TokenizerFiles {
  readonly directory: string;
  /** tokenizer.json, parsed, with the tokens that only tokenizer_config.json names. */
  readonly tokenizer: TokenizerJson;
  /** tokenizer_config.json, parsed; empty if there is none. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly chatTemplates: ChatTemplates;
  /** Every file by name with its content (tokenizer.json unzipped), for saving them elsewhere. */
  readonly contents: ReadonlyMap<string, Buffer>;
}

/** The largest known have 40 MiB. */
const MAX_BYTES = 256 * 1024 * 1024;

const NAMED_TEMPLATES = 'additional_chat_templates';

/**
 * Reads a tokenizer's files. tokenizer.json may be gzipped (`tokenizer.json.gz`); the others are optional.
 *
 * @throws DataError for a missing or damaged file
 */
export async function readTokenizerFiles(directory: string): Promise<TokenizerFiles> {
  const contents = new Map<string, Buffer>();
  const plain = await readOptional(directory, 'tokenizer.json');
  const zipped = plain === undefined ? await readOptional(directory, 'tokenizer.json.gz') : undefined;
  const file = join(directory, plain === undefined ? 'tokenizer.json.gz' : 'tokenizer.json');
  const tokenizerBytes = plain ?? (zipped === undefined ? undefined : unzipped(zipped, file));
  if (tokenizerBytes === undefined)
    throw missingTokenizer(directory, await readOptional(directory, 'tokenizer.model'));
  contents.set('tokenizer.json', tokenizerBytes);
  const tokenizer = checkedTokenizer(jsonObject(tokenizerBytes, file), file);

  let config: Readonly<Record<string, unknown>> = {};
  for (const name of ['special_tokens_map.json', 'tokenizer_config.json']) {
    const bytes = await readOptional(directory, name);
    if (bytes === undefined) continue;
    contents.set(name, bytes);
    config = { ...config, ...jsonObject(bytes, join(directory, name)) };
  }
  const chatTemplates = new Map(
    chatTemplatesOf(config.chat_template, join(directory, 'tokenizer_config.json')),
  );
  // A template in a separate file takes precedence over the one in tokenizer_config.json.
  for (const name of ['chat_template.jinja', ...(await namedTemplateFiles(directory))]) {
    const bytes = await readOptional(directory, name);
    if (bytes === undefined) continue;
    contents.set(name, bytes);
    const key =
      name === 'chat_template.jinja' ? 'default' : name.slice(NAMED_TEMPLATES.length + 1, -'.jinja'.length);
    chatTemplates.set(key, bytes.toString('utf8'));
  }
  const configured = withConfiguredTokens(tokenizer, config, join(directory, 'tokenizer_config.json'));
  return { directory, tokenizer: configured, config, chatTemplates, contents };
}

/** Whether a directory has a tokenizer that can be read. */
export const hasTokenizer = (directory: string): boolean =>
  ['tokenizer.json', 'tokenizer.json.gz'].some((name) => existsSync(join(directory, name)));

async function readOptional(directory: string, name: string): Promise<Buffer | undefined> {
  const file = join(directory, name);
  try {
    if ((await stat(file)).size > MAX_BYTES) throw tooLarge(file);
    return await readFile(file);
  } catch (error) {
    if (error instanceof DataError) throw error;
    const code = (error as { code?: unknown }).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw badTokenizer(`cannot be read (${reasonOf(error)})`, { file, cause: error });
  }
}

async function namedTemplateFiles(directory: string): Promise<readonly string[]> {
  const names = await readdir(join(directory, NAMED_TEMPLATES)).catch(() => []);
  return names.filter((name) => name.endsWith('.jinja')).map((name) => `${NAMED_TEMPLATES}/${name}`);
}

function tooLarge(file: string): DataError {
  return badTokenizer(`has more than ${MAX_BYTES >> 20} MiB; it is no file of a tokenizer`, {
    file,
  });
}

/** Says why a directory that was made of a file has no tokenizer: `{"reason": "…"}`. */
export const UNREAD_TOKENIZER = 'tokenizer.unread.json';

function missingTokenizer(directory: string, sentencePiece: Buffer | undefined): DataError {
  const unread = join(directory, UNREAD_TOKENIZER);
  if (existsSync(unread)) return badTokenizer(JSON.parse(readFileSync(unread, 'utf8')).reason);
  const found =
    sentencePiece === undefined ? '' : '; tokenizer.model (SentencePiece) is there, but is not read';
  return badTokenizer(
    `${existsSync(directory) ? `the directory has no tokenizer.json${found}` : 'there is no such directory'}; save the tokenizer with transformers, or give the path of a model ` +
      'directory that has one',
    { file: directory },
  );
}

function unzipped(bytes: Buffer, file: string): Buffer {
  try {
    return gunzipSync(bytes, { maxOutputLength: MAX_BYTES });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge(file);
    throw badTokenizer(`is damaged gzip data (${reasonOf(error)}); fetch the file again`, {
      file,
    });
  }
}

function jsonObject(bytes: Buffer, file: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw badTokenizer(`is not JSON (${reasonOf(error)}); fetch the file again`, { file });
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw badTokenizer('holds no JSON object', { file });
}
