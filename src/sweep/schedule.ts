// Runs the cells of a sweep, some at a time, until they have ended or a signal stops them.
import { type Cell, type CellOutcome, neededBy } from './cells.js';
import type { SweepFolder } from './folder.js';

/** Starts or resumes one run; `signal` asks it to write a checkpoint and stop. */
export type StartCell = (
  cell: Cell,
  options: { readonly resume: boolean; readonly signal: AbortSignal },
) => Promise<CellOutcome>;

export interface ScheduleOptions {
  readonly folder: SweepFolder;
  readonly start: StartCell;
  readonly jobs: number;
  readonly signal: AbortSignal;
  readonly onStart?: (cell: Cell, options: { readonly resume: boolean }) => void;
  readonly onEnd?: (
    cell: Cell,
    outcome: CellOutcome & { readonly seconds: number; readonly left: number },
  ) => void;
}

/**
 * Resolves when nothing is under way any more. A cell starts once all that it needs have ended; one that failed fails those that need
 * it, and does not stop the others.
 */
export async function runCells(cells: readonly Cell[], options: ScheduleOptions): Promise<void> {
  const { folder, start, jobs, signal, onStart, onEnd } = options;
  const waiting: Cell[] = [];
  const finished = new Set<string>();
  for (const cell of cells) {
    if ((await folder.status(cell)) === 'finished') finished.add(cell.id);
    else waiting.push(cell);
  }
  let left = waiting.length;
  const ended = async (cell: Cell, outcome: CellOutcome, seconds: number) => {
    await folder.addSession(cell, seconds, outcome);
    if (outcome.status === 'finished') finished.add(cell.id);
    left--;
    onEnd?.(cell, { ...outcome, seconds, left });
  };
  const run = async (cell: Cell) => {
    const resume = (await folder.status(cell)) === 'started';
    onStart?.(cell, { resume });
    const began = performance.now();
    const outcome = await start(cell, { resume, signal });
    await ended(cell, outcome, (performance.now() - began) / 1000);
  };
  const lacking = (cell: Cell) => neededBy(cell).find(({ id }) => !finished.has(id));
  const running = new Set<Promise<void>>();
  for (;;) {
    while (running.size < jobs && !signal.aborted) {
      const next = waiting.findIndex((cell) => !lacking(cell));
      if (next < 0) break;
      const [cell] = waiting.splice(next, 1) as [Cell];
      const work: Promise<void> = run(cell).finally(() => running.delete(work));
      running.add(work);
    }
    if (running.size === 0) break;
    await Promise.race(running);
  }
  if (signal.aborted) return;
  for (const cell of waiting)
    await ended(cell, { status: 'failed', reason: `${lacking(cell)?.id}, which it needs, has not ended` }, 0);
}
