/** Results of rows in a directory of their own, a line for each, so that making them can be stopped at any point and go on. */

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDirectories } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { readJson, writeJson } from '../files/json-file.js';
import { lockDirectory } from '../files/lock.js';
import { refuseRun } from '../run/directory.js';
import { RunError } from '../run/error.js';
import { openLogFile } from '../run/log-file.js';
import type { JsonObject } from '../weights/json.js';
import { refuseOtherSettings } from './solving/journal.js';

const SETTINGS = 'settings.json';

export interface RowJournal {
  readonly path: string;
  /** Lines that were there when it was opened. */
  readonly rows: number;
  /** The line is in the file when the call returns. */
  append(row: Readonly<Record<string, unknown>>): void;
  close(): Promise<void>;
}

/**
 * Opens `name` in `directory`, or begins it. A last line that was cut off is dropped.
 *
 * @param settings all that the results depend on
 * @throws RunError where the directory has results of other settings; FileError where another process writes into it
 */
export async function openRowJournal(
  directory: string,
  name: string,
  settings: JsonObject,
): Promise<RowJournal> {
  refuseRun(directory);
  try {
    await makeDirectories(directory);
  } catch (error) {
    throw new RunError(`cannot make the directory ${directory}: ${systemReason(error)}`, { cause: error });
  }
  const unlock = await lockDirectory(directory);
  try {
    const path = join(directory, name);
    const known = join(directory, SETTINGS);
    if (existsSync(known)) refuseOtherSettings(directory, await readJson(known), settings);
    else if (existsSync(path))
      throw new RunError(`${directory} has a ${name} and no ${SETTINGS}; choose another directory`);
    else await writeJson(known, settings);
    const log = openLogFile(path);
    const lines = await readFile(path);
    return {
      path,
      rows: lines.reduce((count, byte) => count + (byte === 10 ? 1 : 0), 0),
      append: (row) => log.append(row),
      async close() {
        log.sync();
        log.close();
        await unlock();
      },
    };
  } catch (error) {
    await unlock();
    throw error;
  }
}
