// Reading solve.json.
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../files/json-file.js';
import { readAs } from '../read-as.js';
import type { SolvingReport } from './solving-report.js';

export const REPORT = 'solve.json';

export const metricValue = z.strictObject({
  value: z.number(),
  interval: z.tuple([z.number(), z.number()]).exactOptional(),
});
const count = z.int().min(0);
const reportSchema = z.looseObject({
  problems: count,
  n: count,
  metrics: z.record(z.string(), metricValue),
  bootstrap: z.strictObject({ seed: count, resamples: count, confidence: z.number() }),
});

/** Throws one sentence where the directory has none, or something else. */
export async function readSolvingReport(directory: string): Promise<SolvingReport> {
  const path = join(directory, REPORT);
  const content = await readJson(path);
  readAs(reportSchema, content, `${path} is no report of steptrain`);
  return content as SolvingReport;
}
