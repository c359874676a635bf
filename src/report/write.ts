/** Writes pages: of a run into its directory, of several where they are compared. */
import { join } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { RunError } from '../run/error.js';
import { collectRun, runsBelow } from './collect.js';
import { renderRun } from './run-page.js';

export const REPORT = 'report.html';

/** Returns the path. Throws RunError where `run` is no run directory, FileError where the page cannot be written. */
export async function writeRunReport(run: string, output = join(run, REPORT)): Promise<string> {
  await writeFileAtomically(output, [Buffer.from(renderRun(await collectRun(run)))]);
  return output;
}

/**
 * The page of one run, or the comparison of several. Returns the path of the page.
 *
 * @param named run directories, or folders with runs
 */
export async function writeReport(named: readonly string[], output?: string): Promise<string> {
  const [only, ...others] = [...new Set(named.flatMap((path) => below(path)))];
  if (only !== undefined && others.length === 0) return writeRunReport(only, output);
  throw new RunError('name one run directory');
}

function below(path: string): string[] {
  const found = runsBelow(path);
  // A directory that is no run is named in the message of its collection.
  return found.length > 0 ? found : [path];
}
