/** Writes pages: of a run into its directory, of several where they are compared. */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { collectRun, runsBelow } from './collect.js';
import { comparePage, shortNames } from './compare.js';
import { page } from './page.js';
import { renderRun } from './run-page.js';

export const REPORT = 'report.html';

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
  const paths = [...new Set(named.flatMap((path) => below(path)).map((path) => resolve(path)))];
  const [first] = paths as [string, ...string[]];
  const folder = named.length === 1 ? resolve(named[0] as string) : dirname(first);
  const sweep = existsSync(join(folder, 'sweep.json')) ? folder : undefined;
  if (paths.length === 1 && sweep === undefined) return writeRunReport(first, output);
  const runs = [];
  for (const path of paths) runs.push(await collectRun(path));
  return write(output ?? join(folder, REPORT), page(comparePage({ runs, names: shortNames(paths), sweep })));
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
