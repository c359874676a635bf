/** Samples in a directory of their own, written chunk by chunk, so that making them can be stopped at any point and go on. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readJson, writeJson } from '../files/json-file.js';
import type { StepRecord } from '../records/record.js';
import { openJournal } from '../run/journal.js';
import type { JsonObject } from '../weights/json.js';
import { Tally, type TallyState } from './tally.js';

export const SAMPLES = 'samples.jsonl';
const PROGRESS = 'progress.json';

interface Progress {
  /** Solutions of the source that are done, with or without samples. */
  readonly solutions: number;
  /** Bytes of whole lines that belong to them. */
  readonly bytes: number;
  readonly tokens: number;
  readonly tally: TallyState;
}

export interface SampleFile {
  /** Solutions that are done. */
  readonly solutions: number;
  /** Tokens drawn for them. */
  readonly tokens: number;
  readonly tally: Tally;
  /** The samples of further solutions, and the tokens drawn for them; they are safe when the call returns. */
  append(records: readonly StepRecord[], solutions: number, tokens: number): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the directory, or begins one. Lines of a chunk that was under way when it was stopped are dropped.
 *
 * @param settings all that samples depend on
 * @throws RunError where it holds samples of other settings; FileError where another process writes into it
 */
export async function openSampleFile(directory: string, settings: JsonObject): Promise<SampleFile> {
  const journal = await openJournal(directory, SAMPLES, settings);
  try {
    const { log } = journal;
    const progress = existsSync(join(directory, PROGRESS))
      ? ((await readJson(join(directory, PROGRESS))) as Progress)
      : undefined;
    log.cutTo(progress?.bytes ?? 0);
    const tally = new Tally(progress?.tally);
    let { solutions, tokens } = { solutions: 0, tokens: 0, ...progress };
    return {
      get solutions() {
        return solutions;
      },
      get tokens() {
        return tokens;
      },
      tally,
      async append(records, done, drawn) {
        for (const record of records) log.append({ ...record });
        log.sync();
        solutions += done;
        tokens += drawn;
        const state: Progress = { solutions, bytes: log.length, tokens, tally: tally.state };
        await writeJson(join(directory, PROGRESS), state);
      },
      close: journal.close,
    };
  } catch (error) {
    await journal.close();
    throw error;
  }
}
