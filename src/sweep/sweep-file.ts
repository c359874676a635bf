/** A sweep from its file, for the command and for programs. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { namedRecipe, shippedFolder } from '../config/shipped.js';
import { checkOptions, invalid } from '../native/errors.js';
import { type Log, loggingTo, toLog } from '../terminal/log.js';
import { childRuns } from './child.js';
import { loadSweep } from './file.js';
import type { FindRecipe } from './folder.js';
import { runSweep } from './run.js';
import type { SweepSummary } from './summary.js';

export interface SweepFileOptions {
  /** The directory for the runs. Default: `output_dir` of the file. */
  readonly output?: string | undefined;
  /** Runs at the same time. Default 1. */
  readonly jobs?: number | undefined;
  /** Values for every run, such as `run.device=cpu`. */
  readonly set?: readonly string[] | undefined;
  /** Stops it: the runs that are under way write a checkpoint, and the same call goes on. */
  readonly signal?: AbortSignal | undefined;
  /** Called when a run begins and when it ends. */
  readonly onRun?: ((event: SweepRunEvent) => void) | undefined;
  /** Takes what the sweep would write to standard error, line by line; each run writes its own to its log file. */
  readonly log?: Log | undefined;
}

export interface SweepRunEvent {
  /** Its folder within that of the sweep. */
  readonly id: string;
  readonly status: 'started' | 'resumed' | 'finished' | 'stopped' | 'failed';
  /** Why it failed. */
  readonly reason?: string;
  /** The seconds that it took, and how many runs are left, at its end. */
  readonly seconds?: number;
  readonly left?: number;
}

const OPTIONS: Record<keyof SweepFileOptions, true> = {
  output: true,
  jobs: true,
  set: true,
  signal: true,
  onRun: true,
  log: true,
};

/**
 * Makes every missing run of a sweep file, each in a process of its own, and continues stopped ones, as `steptrain
 * sweep` does. Writes sweep.json, sweep.md and report.html into its directory.
 *
 * @param file a path, or the name of a sweep of the package
 * @returns the content of sweep.json; `unfinished` has the reasons of failed runs
 * @throws ConfigError before the first run where one of them cannot run; RunError where the directory holds runs of
 *   another sweep
 */
export async function runSweepFile(file: string, options: SweepFileOptions = {}): Promise<SweepSummary> {
  checkOptions('runSweepFile', options, OPTIONS);
  return loggingTo(options.log, () => begun(file, options));
}

async function begun(
  file: string,
  { output, jobs = 1, set, signal = new AbortController().signal, onRun }: SweepFileOptions,
): Promise<SweepSummary> {
  if (!(Number.isSafeInteger(jobs) && jobs > 0))
    throw invalid(`runSweepFile: jobs: expected a whole number of at least 1, found ${jobs}`);
  const loaded = await loadSweep(sweepFile(file), set);
  const sweep = output === undefined ? loaded : { ...loaded, outputDir: output };
  return runSweep(sweep, {
    findRecipe: recipesBeside(sweep.file),
    jobs,
    signal,
    note: (line) => toLog(line),
    starter: (folder) => childRuns(folder, { program: [PROGRAM], jobs }).start,
    onStart: ({ id }, { resume }) => onRun?.({ id, status: resume ? 'resumed' : 'started' }),
    onEnd: ({ id }, outcome) => onRun?.({ id, ...outcome }),
  });
}

/** The file of a sweep: a path, else a sweep of the package. */
export const sweepFile = (name: string): string => namedRecipe(name, join(shippedFolder, 'sweeps'), 'sweep');

/** Finds recipes, first next to the sweep. */
export const recipesBeside =
  (file: string): FindRecipe =>
  (recipe) => {
    const beside = join(dirname(file), recipe);
    return namedRecipe(existsSync(beside) ? beside : recipe);
  };

/** The command line itself, which runs each cell. */
export const PROGRAM = fileURLToPath(new URL('../cli/main.js', import.meta.url));
