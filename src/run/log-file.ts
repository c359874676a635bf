// metrics.jsonl and samples.jsonl: one JSON object per line, append-only, truncated on resume.

import fs from 'node:fs';
import { systemReason, writing } from '../files/error.js';
import { exactText, parseExact } from '../files/exact-json.js';
import { refuseNonFinite } from '../files/json-file.js';
import { RunError } from './error.js';

export interface LogFile {
  readonly path: string;
  /** Bytes of whole lines so far. */
  readonly length: number;
  /**
   * Appends one line. Throws for a number that is not finite, naming its key, and writes nothing. The write is
   * synchronous, so that the line is in the file when the call returns, whatever happens to the process then.
   */
  append(record: Readonly<Record<string, unknown>>): void;
  /** Syncs every line to disk. */
  sync(): void;
  /** Truncates the file to `length` bytes; a shorter file stays unchanged. */
  cutTo(length: number): void;
  close(): void;
}

/** Opens or creates the file at `path`. A last line that was cut off by a crash is dropped. */
export function openLogFile(path: string): LogFile {
  const file = writing(path, () =>
    fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_CREAT | fs.constants.O_APPEND, 0o644),
  );
  let length = writing(path, () => wholeLines(file));
  writing(path, () => fs.fstatSync(file).isFile() && fs.ftruncateSync(file, length));

  return {
    path,
    get length() {
      return length;
    },
    append(record) {
      refuseNonFinite(record, path);
      const line = Buffer.from(`${exactText(record)}\n`);
      writing(path, () => {
        try {
          for (let written = 0; written < line.length; ) written += fs.writeSync(file, line, written);
        } catch (error) {
          if (fs.fstatSync(file).isFile()) fs.ftruncateSync(file, length); // no half line after a full disk
          throw error;
        }
      });
      length += line.length;
    },
    sync() {
      writing(path, () => fs.fsyncSync(file));
    },
    cutTo(bytes) {
      if (bytes >= length) return;
      writing(path, () => fs.ftruncateSync(file, bytes));
      length = bytes;
    },
    close() {
      fs.closeSync(file);
    },
  };
}

/** The objects of a log, in order. Throws RunError for a missing file or a line that is not a JSON object. */
export function readLog(path: string): Readonly<Record<string, unknown>>[] {
  let content: string;
  try {
    content = fs.readFileSync(path, 'utf8');
  } catch (error) {
    throw new RunError(`cannot read ${path}: ${systemReason(error)}`, { cause: error });
  }
  // A last line without its line break was cut off by a crash.
  const lines = content.split('\n').slice(0, -1);
  return lines.map((line, i) => {
    let value: unknown;
    try {
      value = parseExact(line);
    } catch (error) {
      throw new RunError(`${path}, line ${i + 1} is not JSON: ${(error as Error).message}`, { cause: error });
    }
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
    throw new RunError(`${path}, line ${i + 1} is not a JSON object`);
  });
}

/** The numbers under `key` of a log, in order; lines without it are skipped. */
export function readMetric(path: string, key: string): number[] {
  return readLog(path)
    .map((line) => line[key])
    .filter((value) => typeof value === 'number');
}

/** Bytes up to and including the last line break. */
function wholeLines(file: number): number {
  const chunk = Buffer.alloc(64 * 1024);
  let end = fs.fstatSync(file).size;
  while (end > 0) {
    const start = Math.max(0, end - chunk.length);
    fs.readSync(file, chunk, 0, end - start, start);
    const lineBreak = chunk.subarray(0, end - start).lastIndexOf(0x0a);
    if (lineBreak >= 0) return start + lineBreak + 1;
    end = start;
  }
  return 0;
}
