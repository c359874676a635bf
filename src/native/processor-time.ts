import { readFileSync } from 'node:fs';
import { createContext, Script } from 'node:vm';

/** The result of a call, or that its time was over. */
export type Timed<T> = { readonly value: T; readonly late?: false } | { readonly late: true };

/** Milliseconds that the calling thread has had of a processor so far. */
export type Clock = () => number;

const context = createContext({ work: undefined as unknown });
const call = new Script('work()');

/**
 * Calls `work` and ends it when it has used so much processor time, also in the middle of an endless loop or of a
 * regular expression. It is for computations that a file defines, such as a chat template, and costs about 0.1 ms. On a
 * busy machine the thread gets a part of a processor, and `work` is begun again with more real time, so calling it
 * twice must do no harm.
 *
 * @param milliseconds of processor time, which take longer by the clock on a busy processor
 */
export function withinProcessorTime<T>(
  work: () => T,
  milliseconds: number,
  clock: Clock = threadClock,
): Timed<T> {
  for (let patience = milliseconds; ; patience *= 2) {
    const began = clock();
    context.work = work;
    try {
      return { value: call.runInContext(context, { timeout: Math.ceil(patience) }) as T };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
      if (clock() - began >= milliseconds * SURELY) return { late: true };
    } finally {
      context.work = undefined;
    }
  }
}

/** An attempt is late from this part of its limit on: a thread that had a processor to itself may have lost a little. */
const SURELY = 0.9;

/** Ticks of /proc are 10 ms on every Linux of x64 and arm64. */
const TICK_MS = 10;

/** `process.threadCpuUsage` is of Node 22.15; before, /proc tells; without it, all threads of the process count. */
export function threadClock(): number {
  const { threadCpuUsage = procUsage } = process as Partial<
    Record<'threadCpuUsage', () => { user: number; system: number }>
  >;
  const { user, system } = threadCpuUsage();
  return (user + system) / 1000;
}

function procUsage(): { user: number; system: number } {
  try {
    const stat = readFileSync('/proc/thread-self/stat', 'utf8');
    // The name of the thread, in brackets, may hold anything.
    const [user, system] = stat.slice(stat.lastIndexOf(') ')).split(' ').slice(12, 14).map(Number) as [
      number,
      number,
    ];
    if (user + system >= 0) return { user: user * TICK_MS * 1000, system: system * TICK_MS * 1000 };
  } catch {
    // No /proc here.
  }
  return process.cpuUsage();
}
