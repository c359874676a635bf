// `steptrain data convert`: converts any readable layout to records.

import { existsSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { DataConfig } from '../../config/schema.js';
import type { LoadReport } from '../../data/load.js';
import { trainingFiles } from '../../data/training-files.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { exactText } from '../../files/exact-json.js';
import type { StepRecord } from '../../records/record.js';
import { readRecords } from '../../run/divide.js';
import { UsageError } from '../line/error.js';

/** The options of `data` that say how rows are read. */
const READING = [
  'source',
  'columns',
  'group_by',
  'neutral',
  'label_threshold',
  'turns',
  'on_bad_row',
  'prm800k',
] as const satisfies readonly (keyof DataConfig)[];

/** @throws UsageError for a setting without effect on the output */
export function checkReading(settings: readonly string[]): void {
  for (const setting of settings) {
    const [key = ''] = setting.split('=');
    if (!READING.some((name) => key === `data.${name}` || key.startsWith(`data.${name}.`)))
      throw new UsageError(
        `--set ${key}: data convert writes every row that it reads, so it takes ${READING.map((name) => `data.${name}`).join(', ')} alone`,
      );
  }
}

/**
 * Writes the records of `data.train` to a new file, one per line, as a stream; gzipped if the name ends in .gz. The file
 * appears only when complete.
 *
 * @throws UsageError for an unsuitable or existing file name, and where `from`, as the user named it, gives no solution; DataError from reading
 */
export async function convertData(data: DataConfig, output: string, from: string): Promise<LoadReport> {
  if (!/\.(jsonl|ndjson)(\.gz)?$/.test(output)) {
    throw new UsageError(
      `the output is JSON lines: expected a name that ends in .jsonl or .jsonl.gz, found ${output}`,
    );
  }
  if (existsSync(output))
    throw new UsageError(`${output} exists already; choose another name, or remove it first`);
  const { records, report } = readRecords(
    data,
    trainingFiles(data.train).map(({ path }) => path),
  );
  const text = lines(records, from);
  await writeFileAtomically(output, output.endsWith('.gz') ? zipped(text) : text);
  return report;
}

async function* lines(records: AsyncIterable<StepRecord>, from: string): AsyncGenerator<Buffer> {
  let some = false;
  for await (const record of records) {
    some = true;
    yield Buffer.from(`${exactText(record)}\n`);
  }
  if (!some) throw new UsageError(`${from} gives no solution; nothing was written`);
}

/** Starts when it is read: nobody would catch an earlier error. */
async function* zipped(text: AsyncIterable<Buffer>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip();
  // The reader of the archive gets the error.
  pipeline(text, gzip).catch(() => {});
  yield* gzip;
}
