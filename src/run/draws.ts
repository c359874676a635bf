/**
 * draws.jsonl of a run, or of a command that makes data: the samples of the step under way. Each is kept when it ends, so that a
 * step that was stopped, or killed, goes on with those it has. A key says all that a sample depends on but the weights, and
 * these are those of the last checkpoint.
 */
import { createHash } from 'node:crypto';
import { existsSync, rmSync } from 'node:fs';
import { type LogFile, openLogFile, readLog } from './log-file.js';

export interface Draws {
  /** The value kept under `key`, or undefined. */
  get(key: string): unknown;
  /** The value, which is JSON, is in the file when the call returns. */
  keep(key: string, value: unknown): void;
  /** Values that are kept. */
  readonly size: number;
  /** Once the results of the step are safe. */
  clear(): void;
  close(): void;
}

/** Opens the file at `path`, which exists only while it holds something. A last line that was cut off is dropped. */
export function openDraws(path: string): Draws {
  let file: LogFile | undefined;
  let kept: Map<string, unknown> | undefined;
  const known = () => {
    if (kept) return kept;
    kept = new Map();
    if (!existsSync(path)) return kept;
    file = openLogFile(path);
    for (const { key, value } of readLog(path)) kept.set(key as string, value);
    return kept;
  };
  return {
    get: (key) => known().get(key),
    get size() {
      return known().size;
    },
    keep(key, value) {
      known().set(key, value);
      file ??= openLogFile(path);
      file.append({ key, value });
    },
    clear() {
      if (known().size === 0) return;
      file?.close();
      file = undefined;
      rmSync(path, { force: true });
      kept = new Map();
    },
    close() {
      file?.close();
      file = undefined;
      kept = undefined;
    },
  };
}

/** Short, and another one for other values. */
export function drawKey(values: unknown): string {
  return createHash('sha256').update(JSON.stringify(values)).digest('base64').slice(0, 22);
}
