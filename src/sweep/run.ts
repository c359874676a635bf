// A whole sweep: runs that select, then the runs of the table, then the summary.
import { join } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { writeJson } from '../files/json-file.js';
import { lockDirectory } from '../files/lock.js';
import { typedCommand } from '../native/typed-command.js';
import { writeReport } from '../report/write.js';
import { armLevels, type Cell, checkNames, finalCells, trialCells, withNeeds } from './cells.js';
import { points, type Settings, type Sweep } from './file.js';
import { type FindRecipe, SweepFolder } from './folder.js';
import { formatSweep } from './format.js';
import { runCells, type ScheduleOptions, type StartCell } from './schedule.js';
import { type SweepSummary, summarize } from './summary.js';

export interface SweepOptions extends Pick<ScheduleOptions, 'onStart' | 'onEnd'> {
  readonly findRecipe: FindRecipe;
  /** Makes what starts a run; a test passes its own. */
  readonly starter: (folder: SweepFolder) => StartCell;
  readonly jobs: number;
  readonly signal: AbortSignal;
  readonly note: (line: string) => void;
}

/**
 * Makes every run that is missing, goes on with those that were stopped, and writes sweep.json, sweep.md and
 * report.html.
 *
 * @throws ConfigError before the first run where one of them cannot run; RunError where the folder holds runs of another
 * sweep
 */
export async function runSweep(sweep: Sweep, options: SweepOptions): Promise<SweepSummary> {
  const { findRecipe, starter, signal, note } = options;
  const folder = await openSweep(sweep, findRecipe);
  await folder.create();
  const unlock = await lockDirectory(folder.path);
  try {
    const strangers = await folder.strangers(await possibleCells(sweep, folder));
    if (strangers.length > 0)
      note(
        `${strangers.length} runs in ${sweep.outputDir} are not in ${sweep.file} and stay out of its table: ${strangers.slice(0, 3).join(', ')}${strangers.length > 3 ? ', …' : ''}`,
      );
    const schedule = { ...options, folder, start: starter(folder) };
    // An arm whose runs begin from those of another waits for its choice.
    for (const arms of armLevels(sweep)) {
      if (signal.aborted) break;
      const trials = trialCells({ ...sweep, arms });
      await runCells(withNeeds(sweep, trials, await chosenPoints(sweep, folder)), schedule);
    }
    const chosen = await chosenPoints(sweep, folder);
    if (!signal.aborted) await runCells(withNeeds(sweep, finalCells(sweep, chosen), chosen), schedule);
    const summary = await summarize(sweep, folder);
    await writeJson(join(folder.path, 'sweep.json'), summary);
    await writeFileAtomically(join(folder.path, 'sweep.md'), [Buffer.from(`${formatSweep(summary)}\n`)]);
    if (summary.arms.some(({ runs }) => Object.keys(runs).length > 0)) await report(folder.path, note);
    return summary;
  } finally {
    await unlock();
  }
}

/** A page that cannot be written costs nobody the sweep. */
async function report(path: string, note: (line: string) => void): Promise<void> {
  try {
    await writeReport([path]);
  } catch (error) {
    note(`there is no report: ${(error as Error).message}; ${typedCommand(`report ${path}`)} tries again`);
  }
}

/** The folder of a sweep whose every run was found possible. */
export async function openSweep(sweep: Sweep, findRecipe: FindRecipe): Promise<SweepFolder> {
  checkNames(sweep);
  const folder = await SweepFolder.open(sweep, findRecipe);
  await folder.check(await possibleCells(sweep, folder));
  return folder;
}

/** Every cell that the sweep may make, whatever is chosen; those that need others with them as far as these are known. */
async function possibleCells(sweep: Sweep, folder: SweepFolder): Promise<Cell[]> {
  const cells = sweep.arms.flatMap((arm) =>
    points(arm).flatMap((point) => finalCells({ ...sweep, arms: [arm] }, new Map([[arm.name, point]]))),
  );
  const all = [...trialCells(sweep), ...cells];
  const linked = withNeeds(sweep, all, await chosenPoints(sweep, folder));
  return [...new Map([...all, ...linked].map((each) => [each.id, each])).values()];
}

/** The chosen point of each arm whose trials have all ended. */
export async function chosenPoints(
  sweep: Sweep,
  folder: SweepFolder,
): Promise<ReadonlyMap<string, Settings>> {
  const { trials } = await summarize(sweep, folder);
  return new Map(trials.filter(({ chosen }) => chosen).map(({ arm, point }) => [arm, point]));
}
