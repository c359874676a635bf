// Reading solve.json.
import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../../files/json-file.js';
import { RunError } from '../../run/error.js';
import type { SolvingReport } from './report.js';

export const REPORT = 'solve.json';

const count = z.int().min(0);
const reportSchema = z.looseObject({
  problems: count,
  n: count,
  metrics: z.record(
    z.string(),
    z.strictObject({ value: z.number(), interval: z.tuple([z.number(), z.number()]).exactOptional() }),
  ),
  bootstrap: z.strictObject({ seed: count, resamples: count, confidence: z.number() }),
});

/** Throws one sentence where the directory has none, or something else. */
export async function readSolvingReport(directory: string): Promise<SolvingReport> {
  const path = join(directory, REPORT);
  const content = await readJson(path);
  const parsed = reportSchema.safeParse(content);
  if (parsed.success) return content as SolvingReport;
  const [issue] = parsed.error.issues;
  throw new RunError(`${path} is no report of steptrain: ${issue?.path.join('.')}: ${issue?.message}`);
}
