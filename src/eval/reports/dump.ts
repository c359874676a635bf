// verdicts.jsonl: every judged step with its label, probability and verdict, one JSON object per line;
// `steptrain eval compare` reads it.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { fileRows } from '../../data/files.js';
import type { SeenSteps } from '../../data/overlap.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { refuseNonFinite } from '../../files/json-file.js';
import { typedCommand } from '../../native/typed-command.js';
import { normalizeProblem, type StepRecord } from '../../records/record.js';
import { readableResults, readableStep } from '../../records/turns.js';
import { RunError } from '../../run/error.js';
import type { JudgedVerdict } from '../../scoring/verdict/judged.js';
import { readAs } from '../read-as.js';
import type { ProblemStep } from '../statistics/bootstrap.js';

export const VERDICT_DUMP = 'verdicts.jsonl';

/** One line of the dump. */
export interface VerdictRow {
  readonly problem: string;
  /** The source's own identifier of the solution. */
  readonly id?: string | undefined;
  /** Index of the solution among the judged ones, and of the step within it; both from 0. */
  readonly solution: number;
  readonly step: number;
  /** The step, or what a turn says and the calls that it makes. */
  readonly text: string;
  /** Messages that came back for a turn, a line for each. */
  readonly results?: readonly string[] | undefined;
  readonly label: 0 | 1;
  /** Probability of "right" among the two words. */
  readonly probability: number;
  /** null if it could not be read. */
  readonly verdict: 0 | 1 | null;
  /** The reason that the model wrote before its verdict, where it writes one and it ended. */
  readonly reason?: string | undefined;
  /** The step stands word for word in the training data; absent if that is not known. */
  readonly seen?: boolean | undefined;
}

const ROWS_PER_WRITE = 500;

/** The judged steps as rows; `records[solution]` is the solution that a verdict belongs to. */
function verdictRows(
  judged: readonly JudgedVerdict[],
  records: readonly Pick<StepRecord, 'problem' | 'steps' | 'provenance'>[],
  seen: SeenSteps | undefined,
): VerdictRow[] {
  return judged.map(({ solution, step, label, verdict, probability, reason }) => {
    const { problem, steps, provenance } = records[solution]!;
    const results = readableResults(steps[step]!);
    return {
      problem,
      ...(provenance?.id === undefined ? {} : { id: provenance.id }),
      solution,
      step,
      text: readableStep(steps[step]!),
      ...(results.length === 0 ? {} : { results }),
      label,
      probability,
      verdict: verdict ?? null,
      ...(reason === undefined ? {} : { reason }),
      ...(seen ? { seen: seen({ solution, step }) } : {}),
    };
  });
}

/** Writes the judged steps to `path`, whole or not at all. */
export async function writeVerdictDump(
  path: string,
  judged: readonly JudgedVerdict[],
  records: readonly Pick<StepRecord, 'problem' | 'steps' | 'provenance'>[],
  seen?: SeenSteps,
): Promise<void> {
  const rows = verdictRows(judged, records, seen);
  for (const row of rows) refuseNonFinite(row, path);
  await writeFileAtomically(path, chunksOf(rows));
}

function* chunksOf(rows: readonly VerdictRow[]): Generator<Buffer> {
  for (let at = 0; at < rows.length; at += ROWS_PER_WRITE) {
    const lines = rows.slice(at, at + ROWS_PER_WRITE).map((row) => `${JSON.stringify(row)}\n`);
    yield Buffer.from(lines.join(''));
  }
}

const rowSchema = z.strictObject({
  problem: z.string(),
  id: z.string().optional(),
  solution: z.int().min(0),
  step: z.int().min(0),
  text: z.string(),
  results: z.array(z.string()).optional(),
  label: z.union([z.literal(0), z.literal(1)]),
  probability: z.number().min(0).max(1),
  verdict: z.union([z.literal(0), z.literal(1), z.null()]),
  reason: z.string().optional(),
  seen: z.boolean().optional(),
});

/**
 * Reads the dump of a run or output directory, or the file itself.
 *
 * @throws RunError if there is none, or with the line that is not a judged step
 */
export async function readVerdictDump(path: string): Promise<VerdictRow[]> {
  if (!existsSync(path)) throw new RunError(`there is no run directory ${path}`);
  const file = statSync(path).isDirectory() ? join(path, VERDICT_DUMP) : path;
  if (!existsSync(file)) {
    throw new RunError(
      `${path} holds no ${VERDICT_DUMP}; judge its steps with: ${typedCommand(`eval correction ${path} --output DIR`)}, then name DIR`,
    );
  }
  const rows: VerdictRow[] = [];
  for await (const { line, value, bad } of fileRows(file)) {
    const where = `${file}, line ${line}`;
    if (bad !== undefined) throw new RunError(`${where}: ${bad.message}`);
    rows.push(readAs(rowSchema, value, `${where} is not a judged step`));
  }
  if (rows.length === 0) throw new RunError(`${file} holds no judged step`);
  return rows;
}

/** The rows as input of the statistics. */
export function problemSteps(rows: readonly VerdictRow[]): ProblemStep[] {
  return rows.map(({ problem, label, verdict, probability }) => ({
    problem: normalizeProblem(problem),
    label,
    verdict: verdict ?? undefined,
    probability,
  }));
}
