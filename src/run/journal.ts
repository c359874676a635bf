/** Results in a directory of their own, a line for each, so that making them can be stopped at any point and go on. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readJson, writeJson } from '../files/json-file.js';
import { lockDirectory } from '../files/lock.js';
import type { JsonObject } from '../weights/json.js';
import { makeResultsDirectory, refuseRun } from './directory.js';
import { RunError } from './error.js';
import { type LogFile, openLogFile } from './log-file.js';

const SETTINGS = 'settings.json';

export interface Journal extends Pick<LogFile, 'path' | 'append'> {
  /** Lines that were there when it was opened. */
  readonly rows: number;
  readonly log: LogFile;
  /** Syncs, and lets other processes write into the directory. */
  close(): Promise<void>;
}

/**
 * Opens `name` in `directory`, or begins it. A last line that was cut off is dropped.
 *
 * @param settings all that the results depend on
 * @throws RunError where the directory has results of other settings, naming the first that differs; FileError where another process
 *   writes into it
 */
export async function openJournal(directory: string, name: string, settings: JsonObject): Promise<Journal> {
  refuseRun(directory);
  await makeResultsDirectory(directory);
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
      log,
      append: log.append,
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

function refuseOtherSettings(directory: string, found: unknown, settings: JsonObject): void {
  const earlier = typeof found === 'object' && found !== null ? (found as JsonObject) : {};
  for (const key of Object.keys({ ...settings, ...earlier })) {
    const [was, is] = [JSON.stringify(earlier[key]), JSON.stringify(settings[key])];
    if (was === is) continue;
    throw new RunError(
      `${directory} holds samples with other settings: ${key} was ${shown(was)} and is ${shown(is)} now; go on with the ` +
        'settings of then, or choose another directory',
    );
  }
}

function shown(text: string | undefined): string {
  if (text === undefined) return 'not set';
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
