/** A GGUF file as a model directory: its metadata as the files of transformers, and a link to it for its weights. */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { ggufConfig } from '../architectures/gguf-config.js';
import { cacheDirectory } from '../files/cache.js';
import { fileKind } from '../files/kind.js';
import { attempt } from '../native/attempt.js';
import { ending } from '../native/ending.js';
import { ggufTokenizer } from '../tokenizer/gguf-tokenizer.js';
import { UNREAD_TOKENIZER } from '../tokenizer/tokenizer-files.js';
import { WeightsError } from '../weights/error.js';
import { GGUF_FILE } from '../weights/gguf/checkpoint.js';
import { openGguf } from '../weights/gguf/file.js';
import { type Metadata, metadataOf } from '../weights/gguf/metadata.js';

/** Rises when the files that are made of the same GGUF file change. */
const VERSION = 2;

/** Whether the path is that of a GGUF file. */
export function isGguf(path: string): boolean {
  return /\.gguf$/i.test(path) && fileKind(path) === 'file';
}

/**
 * A directory with `config.json`, `tokenizer.json`, `tokenizer_config.json` and the weights, kept in the cache for as long as the file is
 * the same.
 *
 * @throws WeightsError for a file that is damaged or not supported
 */
export function ggufDirectory(path: string): string {
  const file = resolve(path);
  const { size, mtimeMs, ino } = statSync(file);
  const key = createHash('sha256')
    .update(JSON.stringify([VERSION, file, size, mtimeMs, ino]))
    .digest('hex');
  const name = `${basename(file).replace(/\.gguf$/i, '')}-${key.slice(0, 16)}`;
  const directory = join(cacheDirectory(), 'gguf', name);
  if (existsSync(join(directory, 'config.json'))) return directory;
  const contents = filesOf(file);
  const cached = attempt(() => {
    mkdirSync(join(cacheDirectory(), 'gguf'), { recursive: true });
    return write(directory, contents, file);
  });
  // A cache that cannot be written costs time, not the run.
  return cached ?? write(join(mkdtempSync(join(tmpdir(), 'steptrain-gguf-')), name), contents, file);
}

function filesOf(path: string): ReadonlyMap<string, object> {
  using file = ending(openGguf(path));
  const config = ['config.json', ggufConfig(file)] as const;
  return new Map<string, object>([...tokenizerFiles(metadataOf(file)), config]);
}

/** The model can be used with another tokenizer where its own is not read. */
function tokenizerFiles(of: Metadata): readonly (readonly [string, object])[] {
  try {
    const { tokenizer, config } = ggufTokenizer(of);
    return [
      ['tokenizer.json', tokenizer],
      ['tokenizer_config.json', config],
    ];
  } catch (error) {
    if (!(error instanceof WeightsError)) throw error;
    return [[UNREAD_TOKENIZER, { reason: error.message }]];
  }
}

/** All files or none: another process may make the same directory. */
function write(directory: string, contents: ReadonlyMap<string, object>, file: string): string {
  const made = mkdtempSync(`${directory}.`);
  for (const [name, content] of contents) writeFileSync(join(made, name), JSON.stringify(content));
  symlinkSync(file, join(made, GGUF_FILE));
  try {
    renameSync(made, directory);
  } catch (error) {
    rmSync(made, { recursive: true, force: true });
    if (!existsSync(join(directory, 'config.json'))) throw error;
  }
  return directory;
}
