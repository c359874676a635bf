/** A run's messages to its user: lines on standard error, or calls of a function that a program gave. */
import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Takes a line at a time. `warning`: something may be wrong with the run or its data; `progress`: how far it is, at most every ten
 * seconds; `info`: whatever else.
 */
export type Log = (line: string, level: 'info' | 'warning' | 'progress') => void;

const logs = new AsyncLocalStorage<Log>();

/** Runs `work`, whose lines, and those of all that it starts, go to `log`. */
export const loggingTo = <T>(log: Log | undefined, work: () => T): T => (log ? logs.run(log, work) : work());

export function toLog(line: string, level: 'info' | 'warning' = 'info'): void {
  const log = logs.getStore();
  if (log) log(line, level);
  else console.error(line);
}

/** A sentence that begins with `Warning` where nothing else shows that it is one. */
export function warn(sentence: string): void {
  toLog(logs.getStore() ? sentence : `Warning: ${sentence}`, 'warning');
}

const warned = new Set<string>();

/** The same, where it has not said so yet. */
export function warnOnce(sentence: string): void {
  if (warned.has(sentence)) return;
  warned.add(sentence);
  warn(sentence);
}

export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
  /** Takes a line that is independent of the others. Default: it is written like them. */
  note?(text: string): unknown;
}

/** The stream for progress; no terminal, where it is a program's function. */
export function progressStream(): ProgressStream {
  const log = logs.getStore();
  if (!log) return process.stderr;
  return { write: (text) => log(text.trimEnd(), 'progress'), note: (text) => log(text, 'info') };
}
