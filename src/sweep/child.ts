// A run of a sweep in a process of its own, so that nothing of one run is left in the next.

import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { withoutLauncher } from '../cluster/environment.js';
import { INTERRUPTED } from '../run/interrupt.js';
import type { Cell, CellOutcome } from './cells.js';
import type { SweepFolder } from './folder.js';
import type { StartCell } from './schedule.js';

export interface Children {
  readonly start: StartCell;
  /** Ends every process at once; progress after their last checkpoints is lost. */
  kill(): void;
}

/** @param program the arguments of Node that start the command line */
export function childRuns(
  folder: SweepFolder,
  { program, jobs }: { readonly program: readonly string[]; readonly jobs: number },
): Children {
  const running = new Set<ChildProcess>();
  const threads = Math.max(1, Math.floor(availableParallelism() / jobs));
  const env = { STEPTRAIN_THREADS: String(threads), ...withoutLauncher(process.env) };
  return {
    async start(cell, { resume, signal }) {
      let given: readonly string[];
      try {
        given = await cellArguments(folder, cell, resume);
      } catch (error) {
        return { status: 'failed', reason: (error as Error).message };
      }
      return new Promise<CellOutcome>((done, reject) => {
        const directory = folder.directory(cell);
        mkdirSync(dirname(directory), { recursive: true });
        const log = openSync(`${directory}.log`, 'a');
        // A process group of its own: Ctrl-C reaches this process alone, which then asks each run once.
        const child = spawn(process.execPath, [...program, ...given], {
          stdio: ['ignore', log, log],
          detached: true,
          env,
        });
        closeSync(log);
        running.add(child);
        const stop = () => child.kill('SIGTERM');
        signal.addEventListener('abort', stop, { once: true });
        child.on('error', reject);
        child.on('close', (code) => {
          running.delete(child);
          signal.removeEventListener('abort', stop);
          if (code === 0 && cell.task === 'rationales') done({ status: 'finished' });
          else if (code === 0)
            folder
              .status(cell)
              .then((status) => done({ status: status === 'finished' ? 'finished' : 'stopped' }), reject);
          // Asked to stop before it could listen, it ends by the signal itself.
          else if (code === INTERRUPTED || signal.aborted) done({ status: 'stopped' });
          else done({ status: 'failed', reason: `${lastLine(`${directory}.log`)} (${directory}.log)` });
        });
      });
    },
    kill() {
      for (const child of running) child.kill('SIGKILL');
    },
  };
}

async function cellArguments(folder: SweepFolder, cell: Cell, resume: boolean): Promise<string[]> {
  const directory = folder.directory(cell);
  const set = async () => (await folder.settings(cell)).flatMap((text) => ['--set', text]);
  if (cell.task === 'rationales') {
    const { from } = cell.needs;
    const { k, temperature } = cell.arm.rationales ?? {};
    const how = { model: from && folder.directory(from), k, temperature, seed: cell.seed };
    const options = Object.entries(how).flatMap(([name, value]) => [
      `${name.length === 1 ? '-' : '--'}${name}`,
      String(value),
    ]);
    return ['data', 'rationales', folder.recipe(cell), directory, ...options, ...(await set())];
  }
  const shared = folder.sharedStages === undefined ? [] : ['--share-stages', folder.sharedStages];
  if (resume) return ['run', '--resume', directory, ...shared];
  return ['run', folder.recipe(cell), '--output', directory, ...shared, ...(await set())];
}

function lastLine(path: string): string {
  return readFileSync(path, 'utf8').trim().split('\n').at(-1) || 'it ended without a word';
}
