/** Writes pages: for a run into its directory, for several where they are compared. */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { collectRun, readLoosely, runsBelow } from './collect.js';
import { type ComparedSweep, comparePage, shortNames } from './compare.js';
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
  const folder = named.length === 1 ? resolve(only) : undefined;
  const swept = folder === undefined ? undefined : sweepOf(folder);
  const ofTable = swept && swept.runs.length > 0 ? swept.runs : undefined;
  const paths = ofTable?.map(({ path }) => path) ?? [
    ...new Set(named.flatMap((path) => below(path)).map((path) => resolve(path))),
  ];
  const [first] = paths as [string, ...string[]];
  if (paths.length === 1 && !swept) return writeRunReport(first, output);
  const runs = [];
  for (const path of paths) runs.push(await collectRun(path));
  const names = ofTable?.map(({ name }) => name) ?? shortNames(paths);
  const text = page(comparePage({ runs, names, sweep: swept?.sweep }));
  return write(output ?? join(folder ?? dirname(first), REPORT), text);
}

interface SweptRuns {
  readonly sweep: ComparedSweep;
  readonly runs: readonly { readonly path: string; readonly name: string }[];
}

/** The runs in the sweep's table, by seed, without tuning runs; undefined where there is no sweep. */
function sweepOf(folder: string): SweptRuns | undefined {
  if (!existsSync(join(folder, SWEEP))) return undefined;
  const summary = readLoosely(join(folder, SWEEP));
  const rows = isObject(summary) && Array.isArray(summary.arms) ? summary.arms.filter(isObject) : [];
  const arms = rows.map(({ arm, runs }) => ({ arm: String(arm), runs: isObject(runs) ? runs : {} }));
  const seeds = [...new Set(arms.flatMap(({ runs }) => Object.keys(runs)))];
  // Names come from a file that anybody may have written.
  const known = new Set(runsBelow(folder));
  const runs = seeds.flatMap((seed) =>
    arms.flatMap(({ arm, runs: own }) => {
      const path = own[seed] === undefined ? undefined : join(folder, String(own[seed]));
      return path !== undefined && known.has(path) ? [{ path, name: `${arm}, seed ${seed}` }] : [];
    }),
  );
  return { sweep: { folder, arms: arms.map(({ arm }) => arm), seeds }, runs };
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
