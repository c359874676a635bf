/** The words of a process that is not the first of its job: in a file of the run, so that a terminal shows each line once. */
import { closeSync, existsSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** @returns what ends it: after that the words go to standard error again */
export function wordsInto(run: string, rank: number): { end(): void } {
  try {
    // Not the run itself: rank 0 may have removed it, since another process was lost at the start.
    if (!existsSync(join(run, 'ranks'))) mkdirSync(join(run, 'ranks'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') return { end() {} };
  }
  const file = openSync(join(run, 'ranks', `${rank}.log`), 'a');
  const write = process.stderr.write.bind(process.stderr);
  process.stderr.write = ((text: string | Uint8Array) => {
    writeSync(file, typeof text === 'string' ? text : Buffer.from(text).toString());
    return true;
  }) as typeof process.stderr.write;
  return {
    end() {
      process.stderr.write = write;
      closeSync(file);
    },
  };
}
