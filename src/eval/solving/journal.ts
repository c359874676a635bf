// The samples of an evaluation as they come, in a directory of their own, so that it can be stopped at any point and go on.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { objectRows } from '../../data/rows.js';
import { makeDirectories } from '../../files/directory.js';
import { systemReason } from '../../files/error.js';
import { readJson, writeJson } from '../../files/json-file.js';
import { lockDirectory } from '../../files/lock.js';
import { refuseRun } from '../../run/directory.js';
import { RunError } from '../../run/error.js';
import { openLogFile } from '../../run/log-file.js';
import type { JsonObject } from '../../weights/json.js';
import type { SolvingSample } from './sample.js';

const SETTINGS = 'settings.json';
export const SAMPLES = 'samples.jsonl';

export interface Journal {
  /** What was there when it was opened. */
  readonly samples: readonly SolvingSample[];
  /** The sample is in the file when the call returns. */
  append(sample: SolvingSample): void;
  close(): Promise<void>;
}

/**
 * Opens the journal of an evaluation, or begins one.
 *
 * @param settings all that samples depend on
 * @throws RunError where the directory has samples of other settings, naming the first that differs; FileError where another
 *   process writes into it
 */
export async function openJournal(directory: string, settings: JsonObject): Promise<Journal> {
  refuseRun(directory);
  try {
    await makeDirectories(directory);
  } catch (error) {
    throw new RunError(`cannot make the directory ${directory}: ${systemReason(error)}`, { cause: error });
  }
  const unlock = await lockDirectory(directory);
  try {
    const path = join(directory, SETTINGS);
    const file = join(directory, SAMPLES);
    if (existsSync(path)) refuseOtherSettings(directory, await readJson(path), settings);
    else if (existsSync(file))
      throw new RunError(`${directory} has a ${SAMPLES} and no ${SETTINGS}; choose another directory`);
    else await writeJson(path, settings);
    // Opening drops a last line that was cut off.
    const log = openLogFile(file);
    try {
      const samples = await readSamples(file);
      return {
        samples,
        append: (sample) => log.append({ ...sample }),
        async close() {
          log.sync();
          log.close();
          await unlock();
        },
      };
    } catch (error) {
      log.close();
      throw error;
    }
  } catch (error) {
    await unlock();
    throw error;
  }
}

export function refuseOtherSettings(directory: string, found: unknown, settings: JsonObject): void {
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

const count = z.int().min(0);
const sampleSchema = z.strictObject({
  problem: count,
  sample: count,
  text: z.string(),
  tokens: count,
  finish_reason: z.enum(['stop', 'length', 'error', 'too_long']),
  prompt: z.string(),
});

async function readSamples(file: string): Promise<SolvingSample[]> {
  const samples: SolvingSample[] = [];
  const seen = new Set<string>();
  for await (const { row, where } of objectRows(file)) {
    const parsed = sampleSchema.safeParse(row);
    const advice = 'delete the line to have the sample drawn again';
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      const problem = [...(issue?.path ?? []), issue?.message].join(': ');
      throw new RunError(`${where} is no sample of an evaluation (${problem}); ${advice}`);
    }
    const place = `${parsed.data.problem} ${parsed.data.sample}`;
    if (seen.has(place))
      throw new RunError(
        `${where} is sample ${parsed.data.sample} of problem ${parsed.data.problem} a second time; ${advice}`,
      );
    seen.add(place);
    samples.push(parsed.data);
  }
  return samples;
}
