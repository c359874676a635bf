import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import {
  asyncBufferFromFile,
  type Compressors,
  parquetMetadataAsync,
  parquetReadObjects,
  parquetSchema,
  type SchemaTree,
} from 'hyparquet';
import { decompressLz4, decompressLz4Raw, decompressZstd } from 'hyparquet-compressors';
import { badFile, reasonOf } from '../files/data-error.js';
import { noteFloat, noteText, parseExact } from '../files/exact-json.js';
import type { RawRow } from './json-rows.js';
import { classNames } from './parquet-classes.js';
import { decimalText, takeDecimals } from './parquet-decimals.js';
import { shortest } from './parquet-floats.js';
import { TIME_PARSERS, timeOf } from './parquet-times.js';

/** Rows decoded at a time; bounds the memory for files with one large row group. */
const ROWS_PER_READ = 1024;

const compressors: Compressors = {
  GZIP: (input) => gunzipSync(input),
  BROTLI: (input) => brotliDecompressSync(input),
  ZSTD: (input) => decompressZstd(input),
  LZ4: (input, size) => (size === 0 ? new Uint8Array() : decompressLz4(input, size)),
  LZ4_RAW: (input, size) => (size === 0 ? new Uint8Array() : decompressLz4Raw(input, size)),
};

/** Keeps U+FEFF at the beginning of a text. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const parsers = {
  ...TIME_PARSERS,
  stringFromBytes(bytes: Uint8Array | undefined): string | undefined {
    const text = bytes && textOf(bytes);
    if (text instanceof Uint8Array) throw new Error('a text is not UTF-8');
    return text;
  },
  jsonFromBytes: (bytes: Uint8Array) => parseExact(new TextDecoder().decode(bytes)),
};

/** Rows of a parquet file, a slice of a row group at a time. 64-bit integers beyond 2^53 stay bigints, whole numbers of float columns floats, decimals have their digits, single floats are not widened, and times are texts. */
export async function* parquetRows(file: string): AsyncGenerator<RawRow> {
  const { buffer, metadata } = await open(file);
  const total = Number(metadata.num_rows);
  takeDecimals(metadata, file);
  const schema = parquetSchema(metadata);
  const twice = nameTwice(schema);
  if (twice !== undefined) throw badFile(`two columns have the name '${twice}'`, { file });
  const nameClasses = classNames(metadata);
  let groupStart = 0;
  for (const group of metadata.row_groups) {
    const groupEnd = groupStart + Number(group.num_rows);
    for (let rowStart = groupStart; rowStart < groupEnd; rowStart += ROWS_PER_READ) {
      const rowEnd = Math.min(groupEnd, rowStart + ROWS_PER_READ);
      const rows = await read(file, {
        file: buffer,
        metadata,
        compressors,
        parsers,
        utf8: false,
        rowStart,
        rowEnd,
      });
      for (const [i, value] of rows.entries()) {
        const own = exact(value, schema);
        nameClasses?.(own);
        yield { row: rowStart + i + 1, value: own };
      }
    }
    groupStart = groupEnd;
  }
  if (groupStart !== total) {
    throw badFile(`the parquet footer announces ${total} rows, its row groups hold ${groupStart}`, { file });
  }
}

/** The text that `bytes` are, or the bytes where they are none. */
function textOf(bytes: Uint8Array): string | Uint8Array {
  try {
    return utf8.decode(bytes);
  } catch {
    return bytes;
  }
}

/** The text that `bytes` are, or the bytes, which JSON then has as base64. */
function textOrBase64(bytes: Uint8Array): string | Uint8Array {
  const text = textOf(bytes);
  if (typeof text === 'string') return text;
  return Object.defineProperty(text, 'toJSON', { value: () => Buffer.from(text).toString('base64') });
}

/** A name that two columns, or two fields of a column, have: a row would hold the last alone. */
function nameTwice({ children }: ReturnType<typeof parquetSchema>): string | undefined {
  const names = children.map(({ element: { name } }) => name);
  return (
    names.find((name, i) => names.indexOf(name) < i) ??
    children.map(nameTwice).find((name) => name !== undefined)
  );
}

async function open(file: string) {
  try {
    const buffer = await asyncBufferFromFile(file);
    return { buffer, metadata: await parquetMetadataAsync(buffer) };
  } catch (error) {
    throw badFile(`cannot be read as parquet (${reasonOf(error)})`, { file, cause: error });
  }
}

async function read(file: string, options: Parameters<typeof parquetReadObjects>[0]): Promise<unknown[]> {
  try {
    return await parquetReadObjects(options);
  } catch (error) {
    throw badFile(
      `rows ${(options.rowStart ?? 0) + 1} to ${options.rowEnd} cannot be decoded (${reasonOf(error)}); ` +
        'write the file anew, with pages of version 1 and zstd, snappy, gzip, brotli or LZ4 compression',
      { file, cause: error },
    );
  }
}

/** A value with its numbers of the kind that its column has. */
function exact(given: unknown, column: SchemaTree | undefined): unknown {
  const decimal = decimalText(given, column?.element);
  if (decimal?.includes('.')) return Number(decimal);
  if (column?.element.converted_type === 'JSON') return given;
  const value =
    decimal === undefined ? timeOf(shortest(given, column?.element), column?.element) : BigInt(decimal);
  if (typeof value === 'bigint') {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }
  if (Array.isArray(value)) {
    const element = elementOf(column);
    const all = value.map((each) => exact(each, element));
    for (const [i, each] of all.entries()) note(all, i, each, value[i], element);
    return all;
  }
  if (value instanceof Uint8Array) return textOrBase64(value);
  // A null where the file has a list.
  if (value === undefined) return null;
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype)
    return value;
  const all = Object.fromEntries(
    Object.entries(value).map(([key, each]) => {
      const field = fieldOf(column, key);
      return [key, isEmptyList(each, field) ? [] : exact(each, field)];
    }),
  );
  for (const [key, each] of Object.entries(all))
    note(all, key, each, (value as Record<string, unknown>)[key], fieldOf(column, key));
  return all;
}

/** Notes how a number is written, where JavaScript would write it otherwise. */
function note(
  container: object,
  key: string | number,
  value: unknown,
  given: unknown,
  column: SchemaTree | undefined,
): void {
  const decimal = decimalText(given, column?.element);
  if (decimal?.includes('.')) noteText(container, key, decimal);
  else if (isFloat(column)) noteFloat(container, key, value);
}

const isFloat = (column: SchemaTree | undefined) =>
  column?.children.length === 0 &&
  (column.element.type === 'FLOAT' ||
    column.element.type === 'DOUBLE' ||
    column.element.logical_type?.type === 'FLOAT16');

/** A repeated column without LIST around it (parquetjs, Protocol Buffers) has no null: none is an empty list. */
const isEmptyList = (value: unknown, column: SchemaTree | undefined) =>
  (value === undefined || value === null) && column?.element.repetition_type === 'REPEATED';

/** The column of a list's elements: a group LIST has a repeated group around them, older files a repeated column. */
function elementOf(list: SchemaTree | undefined): SchemaTree | undefined {
  const [repeated] = list?.children ?? [];
  if (list?.element.converted_type !== 'LIST' || repeated === undefined) return list;
  return repeated.children.length === 1 ? repeated.children[0] : repeated;
}

/** The column of an object's field; for a map, the column of all its values. */
function fieldOf(object: SchemaTree | undefined, key: string): SchemaTree | undefined {
  if (object?.element.converted_type === 'MAP') return object.children[0]?.children[1];
  return object?.children.find(({ element }) => element.name === key);
}
