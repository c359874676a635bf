/** The words of a process that is not the first of its job: in a file of the run, so that a terminal shows each line once. */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** @returns what ends it: after that the words go to standard error again */
export function wordsInto(run: string, rank: number): { end(): void } {
  mkdirSync(join(run, 'ranks'), { recursive: true });
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
