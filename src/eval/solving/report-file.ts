// Reading solve.json.
import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import type { EqualityOptions } from '../../answers/equal.js';
import type { ExtractionOptions } from '../../answers/extract.js';
import { readJson } from '../../files/json-file.js';
import { RunError } from '../../run/error.js';
import { readAs } from '../read-as.js';
import type { SolvingReport } from './solving-report.js';

type Grading = SolvingReport['grading'];

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
  grading: z
    .strictObject({
      expect: z.enum(['any', 'choice']),
      units: z.enum(['optional', 'required']),
      digits: z.number().nullable(),
    })
    .optional(),
});

export function gradingOf({
  expect = 'any',
  units = 'optional',
  digits = 6,
}: EqualityOptions & ExtractionOptions): Grading {
  return { expect, units, digits: Number.isFinite(digits) ? digits : null };
}

/**
 * How two evaluations compared answers, which must be the same way: of two readings of one answer the one would be right and the other
 * wrong. A run, which has no solve.json, compares as `eval solve` does by default.
 *
 * @param paths directories with solved problems, or such files
 * @throws RunError with the option that differs
 */
export async function sharedGrading(paths: readonly [string, string]): Promise<EqualityOptions> {
  const [a, b] = await Promise.all(paths.map(readGrading));
  const key = (['digits', 'units', 'expect'] as const).find((key) => a?.[key] !== b?.[key]);
  if (a === undefined || b === undefined || key === undefined) return optionsOf(a ?? gradingOf({}));
  const shown = ({ [key]: value }: Grading) => `--${key} ${value ?? 'Infinity'}`;
  throw new RunError(
    `the answers of ${paths[0]} were compared with ${shown(a)}, those of ${paths[1]} with ${shown(b)}; compare both alike: the same ` +
      `eval solve with another --${key} grades its samples again and draws none`,
  );
}

const optionsOf = ({ units, digits }: Grading): EqualityOptions => ({
  units,
  digits: digits ?? Number.POSITIVE_INFINITY,
});

async function readGrading(path: string): Promise<Grading> {
  const directory = existsSync(path) && statSync(path).isDirectory() ? path : dirname(path);
  const grading = existsSync(join(directory, REPORT))
    ? (await readSolvingReport(directory)).grading
    : undefined;
  return grading ?? gradingOf({});
}

/** Throws one sentence where the directory has none, or something else. */
export async function readSolvingReport(directory: string): Promise<SolvingReport> {
  const path = join(directory, REPORT);
  const content = await readJson(path);
  readAs(reportSchema, content, `${path} is no report of steptrain`);
  return content as SolvingReport;
}
