import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { asyncBufferFromFile, type Compressors, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { decompressLz4, decompressLz4Raw, decompressZstd } from 'hyparquet-compressors';
import { badFile, reasonOf } from '../files/data-error.js';
import type { RawRow } from './json-rows.js';

/** Rows decoded at a time; bounds the memory for files with one large row group. */
const ROWS_PER_READ = 1024;

const compressors: Compressors = {
  GZIP: (input) => gunzipSync(input),
  BROTLI: (input) => brotliDecompressSync(input),
  ZSTD: (input) => decompressZstd(input),
  LZ4: decompressLz4,
  LZ4_RAW: decompressLz4Raw,
};

/** Rows of a parquet file, a slice of a row group at a time. 64-bit integers become numbers. */
export async function* parquetRows(file: string): AsyncGenerator<RawRow> {
  const { buffer, metadata } = await open(file);
  const total = Number(metadata.num_rows);
  let groupStart = 0;
  for (const group of metadata.row_groups) {
    const groupEnd = groupStart + Number(group.num_rows);
    for (let rowStart = groupStart; rowStart < groupEnd; rowStart += ROWS_PER_READ) {
      const rowEnd = Math.min(groupEnd, rowStart + ROWS_PER_READ);
      const rows = await read(file, { file: buffer, metadata, compressors, rowStart, rowEnd });
      for (const [i, value] of rows.entries()) yield { row: rowStart + i + 1, value: plainNumbers(value) };
    }
    groupStart = groupEnd;
  }
  if (groupStart !== total) {
    throw badFile(`the parquet footer announces ${total} rows, its row groups hold ${groupStart}`, { file });
  }
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
        'write the file anew, with zstd, snappy, gzip, brotli or LZ4 compression',
      { file, cause: error },
    );
  }
}

function plainNumbers(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plainNumbers);
  if (value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, plainNumbers(entry)]));
  }
  return value;
}
