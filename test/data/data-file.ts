import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
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

const folder = mkdtempSync(join(tmpdir(), 'steptrain-data-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A file in a directory of its own, until the test file has ended. */
export function fileWith(name: string, content: string | Buffer): string {
  const path = join(mkdtempSync(join(folder, 'file-')), name);
  writeFileSync(path, content);
  return path;
}
