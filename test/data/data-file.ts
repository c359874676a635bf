import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inject } from 'vitest';
import { type LoadOptions, type LoadReport, loadRecords } from '../../src/data/load.js';
import type { StepRecord } from '../../src/records/record.js';

/** Every record of a path, and the finished report. */
export async function load(
  path: string,
  options?: LoadOptions,
): Promise<{ records: StepRecord[]; report: LoadReport }> {
  const { records, report } = loadRecords(path, options);
  const all: StepRecord[] = [];
  for await (const record of records) all.push(record);
  return { records: all, report };
}

/** A file in a directory of its own, until all tests have ended. */
export function fileWith(name: string, content: string | Buffer): string {
  const path = join(mkdtempSync(join(inject('folder'), 'file-')), name);
  writeFileSync(path, content);
  return path;
}
