/** Writes pages: of a run into its directory, of several where they are compared. */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { collectRun, readLoosely, runsBelow } from './collect.js';
import { comparePage, shortNames } from './compare.js';
import { page } from './page.js';
import { renderRun } from './run-page.js';
import { isObject } from './values.js';

export const REPORT = 'report.html';
/** The summary of a sweep, in the folder of its runs. */
export const SWEEP = 'sweep.json';

/** Returns the path. Throws RunError where `run` is no run directory, FileError where the page cannot be written. */
export async function writeRunReport(run: string, output = join(run, REPORT)): Promise<string> {
  return write(output, renderRun(await collectRun(run)));
}

/**
 * The page of one run, or the comparison of several: in the folder that was named, else in the one that holds the first run.
 * Returns its path.
 *
 * @param named run directories, or folders with runs such as a sweep's
 */
export async function writeReport(named: readonly string[], output?: string): Promise<string> {
  const [only = ''] = named;
  const selected = named.length === 1 ? selectedRuns(resolve(only)) : [];
  const paths =
    selected.length > 0
      ? selected
      : [...new Set(named.flatMap((path) => below(path)).map((path) => resolve(path)))];
  const [first] = paths as [string, ...string[]];
  const folder = named.length === 1 ? resolve(only) : dirname(first);
  const sweep = existsSync(join(folder, SWEEP)) ? folder : undefined;
  if (paths.length === 1 && sweep === undefined) return writeRunReport(first, output);
  const runs = [];
  for (const path of paths) runs.push(await collectRun(path));
  return write(output ?? join(folder, REPORT), page(comparePage({ runs, names: shortNames(paths), sweep })));
}

/** Of a sweep the runs of its table, seed by seed, without those that only chose; none where there is no sweep or no such run yet. */
function selectedRuns(folder: string): string[] {
  const summary = readLoosely(join(folder, SWEEP));
  const arms = isObject(summary) && Array.isArray(summary.arms) ? summary.arms : [];
  const runs = arms.flatMap((arm) => (isObject(arm) && isObject(arm.runs) ? [Object.entries(arm.runs)] : []));
  const seeds = [...new Set(runs.flatMap((own) => own.map(([seed]) => seed)))];
  // Names come from a file that anybody may have written.
  const known = new Set(runsBelow(folder));
  return seeds
    .flatMap((seed) =>
      runs.flatMap((own) => own.flatMap(([of, id]) => (of === seed ? [join(folder, String(id))] : []))),
    )
    .filter((path) => known.has(path));
}

async function write(path: string, text: string): Promise<string> {
  await writeFileAtomically(path, [Buffer.from(text)]);
  return path;
}

function below(path: string): string[] {
  const found = runsBelow(path);
  // A directory that is no run is named in the message of its collection.
  return found.length > 0 ? found : [path];
}
