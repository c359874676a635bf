import { createReadStream, existsSync } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { basename, dirname, extname, join, relative } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { badFile, DataError, reasonOf } from '../files/data-error.js';
import { orNearFile } from '../files/near-file.js';
import { plural } from '../native/shown.js';
import { csvRows } from './csv-rows.js';
import { jsonRows, type RawRow } from './json-rows.js';
import { parquetRows } from './parquet-rows.js';
import { partOfName } from './split-words.js';
import { textRows } from './text-rows.js';

const EXTENSIONS = [
  ...['.jsonl', '.json', '.ndjson', '.csv'].flatMap((extension) => [extension, `${extension}.gz`]),
  '.parquet',
];
/** Files of questions and answers; see `textRows`. In a directory they count only where it has no other data. */
const TEXT = /\.txt(\.gz)?$/;
const ABOUT = /^(readme|licen[cs]e|notice|changelog)/i;
/** Data in forms that are not read; beside files that are, they would be missed by nobody. */
const UNREAD =
  /\.(?:jsonl|json|ndjson|csv|tsv|parquet)\.(?:zst|zstd|bz2|xz|lz4|br|zip|7z)$|\.(?:tsv(?:\.gz)?|arrow|feather|avro|orc)$/i;
const EXPECTED = `${EXTENSIONS.join(', ')}, .txt of questions and answers`;

/**
 * The data files behind a path, in a fixed order: the file itself, the files whose name fits a pattern with `*`, or all
 * data files of a directory and its subdirectories sorted by name.
 * Other files of a directory (licences, readmes) are ignored.
 */
export async function dataFiles(path: string): Promise<readonly string[]> {
  if (basename(path).includes('*')) return matchingFiles(path);
  const info = await stat(path).catch((error: unknown) => {
    throw badFile(missing(error, path), { file: path, cause: error });
  });
  if (!info.isDirectory()) {
    if (!isDataFile(path) && !TEXT.test(path)) {
      throw badFile(`cannot tell the format from the name; expected one of ${EXPECTED}`, {
        file: path,
      });
    }
    return [path];
  }
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  // Files of the Hugging Face cache are links.
  const found = (fits: (name: string) => boolean) =>
    entries
      .filter((entry) => !entry.isDirectory() && !entry.name.startsWith('.') && fits(entry.name))
      .map((entry) => join(entry.parentPath, entry.name))
      .sort();
  const holds = (name: string) => existsSync(join(path, name));
  if (holds('adapter_config.json') || (holds('config.yaml') && holds('metrics.jsonl')))
    throw badFile('is a run or an adapter, no data; name a data file, or a directory of them', {
      file: path,
    });
  const [arrow] = found((name) => name.endsWith('.arrow'));
  if (arrow !== undefined && (holds('dataset_info.json') || holds('dataset_dict.json')))
    throw savedDataset(path, holds('dataset_dict.json'));
  const rows = found(isDataFile);
  refuseUnread(rows, found(isUnread), path);
  const files = rows.length > 0 ? rows : found((name) => TEXT.test(name) && !ABOUT.test(name));
  if (files.length === 0) {
    throw badFile(`the directory holds no data file; expected ${EXPECTED}`, {
      file: path,
    });
  }
  refuseTwice(files, path);
  refuseParts(files, path);
  return files;
}

/**
 * The refusal of a directory that `save_to_disk` of `datasets` wrote, whose files are Arrow, with the command that
 * converts it to Parquet.
 */
function savedDataset(path: string, isDict: boolean): DataError {
  const folder = path.replace(/\/+$/, '');
  const write = isDict
    ? `[part.to_parquet(f'${folder}-parquet/{name}.parquet') for name, part in saved.items()]`
    : `saved.to_parquet('${folder}.parquet')`;
  return badFile(
    'is a data set that `datasets` saved as Arrow files (save_to_disk); write it as Parquet: ' +
      `python -c "from datasets import load_from_disk; saved = load_from_disk('${folder}'); ${write}"`,
    { file: path },
  );
}

/** Data that is not read: in another form, or its ending in capitals. */
const isUnread = (name: string): boolean =>
  UNREAD.test(name) || (!isDataFile(name) && isDataFile(name.toLowerCase()));

/** Refuses to read some of the data and to leave out the rest without a word. */
function refuseUnread(read: readonly string[], [first, ...more]: readonly string[], path: string): void {
  if (read.length === 0 || first === undefined) return;
  const others = more.length === 0 ? '' : ` and ${plural(more.length, 'other')}`;
  throw badFile(
    `holds data that is not read beside data that is: ${basename(first)}${others}; write them as one of ${EXPECTED}, or name the files to read, ` +
      `such as ${join(dirname(read[0] as string), `*${extname(read[0] as string)}`)}`,
    { file: path },
  );
}

/** Refuses a directory whose files are of several parts by their names: training would read what tests it. */
function refuseParts(files: readonly string[], path: string): void {
  const byPart = new Map(files.map((file) => [partOfName(relative(path, file)), file]));
  byPart.delete(undefined);
  if (byPart.size < 2) return;
  const shown = [...byPart].map(([part, file]) => `${relative(path, file)} (${part})`);
  throw badFile(
    `holds files of several parts: ${shown.join(', ')}; name the files or the folder of one, such as ${[...byPart.values()][0]}`,
    { file: path },
  );
}

/** Refuses one name in two forms, such as `train.jsonl` beside `train.parquet`, whose rows would count twice. */
function refuseTwice(files: readonly string[], path: string): void {
  const stemOf = (file: string) => {
    const extension = EXTENSIONS.find((end) => file.endsWith(end)) ?? '';
    return file.slice(0, file.length - extension.length);
  };
  const seen = new Map<string, string>();
  for (const file of files) {
    const other = seen.get(stemOf(file));
    if (other !== undefined)
      throw badFile(
        `holds ${basename(other)} and ${basename(file)}, and rows that are in both would count twice; remove one, or name the files to read, ` +
          `such as ${join(dirname(file), `*${extname(file)}`)}`,
        { file: path },
      );
    seen.set(stemOf(file), file);
  }
}

/** Matches file names against a pattern in which `*` stands for any text. */
export function namePattern(pattern: string): { readonly test: (name: string) => boolean } {
  const source = pattern.split('*').map((part) => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'));
  const expression = new RegExp(`^${source.join('.*')}$`, 's');
  return { test: (name) => expression.test(name) };
}

async function matchingFiles(path: string): Promise<readonly string[]> {
  const { test } = namePattern(basename(path));
  const names = await readdir(dirname(path)).catch((error: unknown) => {
    throw badFile(missing(error, dirname(path)), { file: dirname(path), cause: error });
  });
  const files = names.filter((name) => test(name) && (isDataFile(name) || TEXT.test(name))).sort();
  refuseUnread(
    files,
    names.filter((name) => test(name) && isUnread(name)),
    path,
  );
  refuseTwice(files, path);
  if (files.length > 0) return files.map((name) => join(dirname(path), name));
  throw badFile(`no data file fits this pattern; expected ${EXPECTED}`, {
    file: path,
  });
}

/** Rows of one data file as a stream; the format follows from the name. */
export async function* fileRows(file: string): AsyncGenerator<RawRow> {
  if (file.endsWith('.parquet')) {
    yield* parquetRows(file);
    return;
  }
  const zipped = file.endsWith('.gz');
  if (zipped) await checkGzip(file);
  const raw = createReadStream(file);
  // The pipeline needs a callback to destroy both ends; the error itself surfaces in the iteration below.
  const stream: Readable = zipped ? pipeline(raw, createGunzip(), () => {}) : raw;
  const lines = !/\.json(\.gz)?$/.test(file);
  try {
    if (/\.csv(\.gz)?$/.test(file)) yield* csvRows(stream, file);
    else if (TEXT.test(file)) yield* textRows(stream, file);
    else yield* jsonRows(stream, file, { lines });
  } catch (error) {
    if (error instanceof DataError) throw error;
    const isZlib = (error as { code?: unknown }).code?.toString().startsWith('Z_') === true;
    const what = isZlib
      ? `the gzip data is damaged or cut short (${reasonOf(error)}); fetch the file again`
      : missing(error, file);
    throw badFile(what, { file, cause: error });
  } finally {
    stream.destroy();
    raw.destroy();
  }
}

/** Whether the name has the extension of a readable format. */
export function isDataFile(name: string): boolean {
  return EXTENSIONS.some((extension) => name.endsWith(extension));
}

async function checkGzip(file: string): Promise<void> {
  const handle = await open(file).catch((error: unknown) => {
    throw badFile(missing(error, file), { file, cause: error });
  });
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0);
    if (bytesRead < 2 || buffer[0] !== 0x1f || buffer[1] !== 0x8b) {
      throw badFile('is not gzip data although its name ends in .gz; rename it or compress it', { file });
    }
  } finally {
    await handle.close();
  }
}

function missing(error: unknown, file: string): string {
  const code = (error as { code?: unknown }).code;
  if (code === 'ENOENT') return `there is no such file or directory${orNearFile(file) || '; check the path'}`;
  if (code === 'EACCES') return 'the file may not be read; check its permissions';
  if (code === 'EISDIR') return 'is a directory; name a file in it';
  return `cannot be read (${reasonOf(error)})`;
}
