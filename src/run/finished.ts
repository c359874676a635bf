/** The end of a run, noted in progress.json with what it left, so that a finished run is not computed again. */
import { existsSync } from 'node:fs';
import { readJson } from '../files/json-file.js';
import type { RunDirectory } from './directory.js';
import { readLog } from './log-file.js';

const PROGRESS = 'progress.json';

/** Files and folders that a run may leave. */
const RESULTS = [
  'adapter',
  'model',
  'reward',
  'value_head.safetensors',
  'reward_head.safetensors',
  'eval.json',
  'verdicts.jsonl',
];

interface Progress {
  /** Absent until all is written. */
  readonly finished?: { readonly results: readonly string[] };
}

/** Notes that all is written. */
export async function noteFinished(run: RunDirectory): Promise<void> {
  const progress = existsSync(run.file(PROGRESS)) ? ((await readJson(run.file(PROGRESS))) as Progress) : {};
  const results = RESULTS.filter((name) => existsSync(run.file(name)));
  await run.writeJson(PROGRESS, { ...progress, finished: { results } });
}

/** Names of what a finished run left; undefined where it has not finished, or something of it is gone. */
export async function finishedResults(run: RunDirectory): Promise<readonly string[] | undefined> {
  if (!existsSync(run.file(PROGRESS)) || readLog(run.metrics.path).at(-1)?.phase !== 'test') return undefined;
  const { finished } = (await readJson(run.file(PROGRESS))) as Progress;
  return finished?.results.every((name) => existsSync(run.file(name))) ? finished.results : undefined;
}
