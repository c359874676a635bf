// Values that a finished run reports: those of eval.json and metrics.jsonl by key.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { dotted } from '../config/dotted.js';
import { readJson } from '../files/json-file.js';
import { RunError } from '../run/error.js';
import { readLog } from '../run/log-file.js';
import { curveKeys, VALIDATION } from '../run/metric-keys.js';

/** The results of one run. */
export interface RunResults {
  readonly report: unknown;
  readonly log: readonly Readonly<Record<string, unknown>>[];
  /** Trained tokens, those of the runs that it began from included. */
  readonly totalTokens?: number;
}

const LOG = 'log.';
/** The key of what no run knows by itself. */
const TOTAL_TOKENS = 'total_tokens';

/** Whether the run in `directory` has ended; `keys` are read from it. The last line of a log is the test's. */
export function isFinished(directory: string, keys: readonly string[]): boolean {
  if (keys.some((key) => !key.startsWith(LOG)) && !existsSync(join(directory, 'eval.json'))) return false;
  return logOf(directory).at(-1)?.phase === 'test';
}

export async function readResults(directory: string): Promise<RunResults> {
  const path = join(directory, 'eval.json');
  return { report: existsSync(path) ? await readJson(path) : {}, log: logOf(directory) };
}

/** The doubts of a run's evaluation, in sentences. */
export function warningsOf(report: unknown): readonly string[] {
  const found = within(report, ['warnings']);
  return Array.isArray(found) ? found.filter((each) => typeof each === 'string') : [];
}

/** The number at `key`; undefined where the run has none. Throws RunError where it is something else. */
export function valueAt({ report, log, totalTokens }: RunResults, key: string): number | undefined {
  if (key === TOTAL_TOKENS) return totalTokens;
  const found = key.startsWith(LOG) ? logged(log, key.slice(LOG.length)) : within(report, key.split('.'));
  if (found === undefined || found === null) return undefined;
  if (typeof found === 'number') return found;
  throw new RunError(
    `${key} is not a number but ${Array.isArray(found) ? 'a list' : `a ${typeof found}`}; name a number`,
  );
}

/** Dotted keys of the numbers in eval.json, and of those in the log, for messages. */
export function numbersOf({ report, log }: RunResults): string[] {
  const phases = [...new Set(log.map(({ phase }) => String(phase)))];
  const ofLog = phases.flatMap((phase) => {
    const own = log.filter((line) => line.phase === phase);
    const keys = new Set(own.flatMap((line) => Object.keys(line).map(curveKeys(line))));
    return [...keys].map((key) => `${LOG}${phase}.${key}`);
  });
  const ofReport = dotted(report).flatMap(([key, value]) => (typeof value === 'number' ? [key] : []));
  return [...ofReport, ...ofLog];
}

/** The last value of PHASE.KEY in training or, where it has no such key, in evaluations; of PHASE.validation/KEY in these. */
function logged(log: RunResults['log'], name: string): unknown {
  const dot = name.indexOf('.');
  const [phase, key] = [name.slice(0, dot), name.slice(dot + 1)];
  const last = (wanted: string) => {
    for (const line of log.toReversed()) {
      const keyOf = curveKeys(line);
      const found = line.phase === phase && Object.entries(line).find(([own]) => keyOf(own) === wanted);
      if (found) return found[1];
    }
    return undefined;
  };
  return last(key) ?? last(VALIDATION + key);
}

/** A key of the report may itself contain dots. */
function within(value: unknown, path: readonly string[]): unknown {
  if (path.length === 0) return value;
  if (typeof value !== 'object' || value === null) return undefined;
  for (let taken = 1; taken <= path.length; taken++) {
    const key = path.slice(0, taken).join('.');
    if (!Object.hasOwn(value, key)) continue;
    const found = within((value as Record<string, unknown>)[key], path.slice(taken));
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Empty where the run has not logged anything yet. */
function logOf(directory: string): RunResults['log'] {
  const path = join(directory, 'metrics.jsonl');
  return existsSync(path) ? readLog(path) : [];
}
