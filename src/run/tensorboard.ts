// metrics.jsonl for TensorBoard: every line becomes one event with a scalar per metric. metrics.jsonl is authoritative;
// the event file is written again from it whenever the two might differ.
import fs from 'node:fs';
import { join } from 'node:path';
import { systemReason } from '../files/error.js';
import { RunError } from './error.js';
import { type LogFile, readLog } from './log-file.js';
import { curveKeys } from './metric-keys.js';
import { eventFrame, scalarWallTimes, type TfEvent } from './tfevents.js';

const FILE_VERSION = 'brain.Event:2';
const PREFIX = 'events.out.tfevents.';

type Metrics = Readonly<Record<string, unknown>>;

/**
 * `metrics` with a copy of its lines as events in `folder`. Opened on an earlier run or truncated, it writes a new event
 * file with the wall times of the remaining lines. Tags are those of `scalarsOf`. A line without a step gives no scalars.
 */
export function withTensorBoard(
  metrics: LogFile,
  folder: string,
  {
    now = Date.now,
    onAppend,
  }: {
    /** Milliseconds. */
    readonly now?: () => number;
    /** Called before each line. */
    readonly onAppend?: () => void;
  } = {},
): LogFile {
  const attempt = <T>(call: () => T): T => {
    try {
      return call();
    } catch (error) {
      if (error instanceof RunError) throw error;
      throw new RunError(`cannot write the TensorBoard events in ${folder}: ${systemReason(error)}`, {
        cause: error,
      });
    }
  };
  const seconds = () => now() / 1000;
  let file: number | undefined;
  // Rewritten once, at the next line to write, however often it is truncated before.
  let stale = metrics.length > 0 || attempt(() => eventFiles(folder)).length > 0;

  const close = () => {
    if (file !== undefined) fs.closeSync(file);
    file = undefined;
  };
  const rewrite = () => {
    close();
    const old = eventFiles(folder);
    if (metrics.length > 0) {
      const wallTimes = wallTimesIn(folder);
      const events = readLog(metrics.path).map((line, i) => eventOf(line, wallTimes[i] ?? seconds()));
      file = newFile(folder, { wallTime: seconds(), after: old.at(-1), events });
    }
    // A TensorBoard that is reading the last file must find it, empty, to move on to the next.
    for (const name of old.slice(0, -1)) fs.unlinkSync(join(folder, name));
    if (old.length > 0) fs.truncateSync(join(folder, old.at(-1)!));
    stale = false;
  };

  return {
    path: metrics.path,
    get length() {
      return metrics.length;
    },
    append(record) {
      onAppend?.();
      if (stale) attempt(rewrite);
      metrics.append(record);
      attempt(() => {
        file ??= newFile(folder, { wallTime: seconds(), after: eventFiles(folder).at(-1), events: [] });
        fs.writeFileSync(file, eventFrame(eventOf(record, seconds())));
      });
    },
    sync: () => metrics.sync(),
    cutTo(length) {
      if (length >= metrics.length) return;
      metrics.cutTo(length);
      stale = true;
    },
    close() {
      try {
        if (stale) attempt(rewrite);
      } finally {
        metrics.close();
        close();
      }
    },
  };
}

/** Wall times of the lines of metrics.jsonl, in seconds since 1970, from the events in `folder`; empty where there are none. */
export function wallTimesIn(folder: string): number[] {
  const file = eventFiles(folder).at(-1);
  return file === undefined ? [] : scalarWallTimes(fs.readFileSync(join(folder, file)));
}

/**
 * Writes an event file whose name sorts after `after`: a running TensorBoard moves on to the next file and would not
 * notice a changed one; the session start makes it forget earlier values. Returns the file open for appending.
 */
function newFile(
  folder: string,
  options: {
    readonly wallTime: number;
    readonly after: string | undefined;
    readonly events: readonly TfEvent[];
  },
): number {
  const { wallTime, after, events } = options;
  const opening = [
    { wallTime, fileVersion: FILE_VERSION },
    { wallTime, sessionStart: true },
  ];
  const [time = 0, number = -1] = after?.slice(PREFIX.length).split('.').map(Number) ?? [];
  const name = [Math.max(Math.floor(wallTime), time), number + 1]
    .map((part, i) => String(part).padStart(i === 0 ? 10 : 4, '0'))
    .join('.');
  const path = join(folder, PREFIX + name);
  const unfinished = join(folder, '.unfinished');
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(unfinished, Buffer.concat([...opening, ...events].map(eventFrame)));
  fs.renameSync(unfinished, path);
  return fs.openSync(path, 'a');
}

function eventFiles(folder: string): string[] {
  if (!fs.existsSync(folder)) return [];
  return fs
    .readdirSync(folder)
    .filter((name) => name.startsWith(PREFIX))
    .sort();
}

function eventOf({ step, ...line }: Metrics, wallTime: number): TfEvent {
  const known = typeof step === 'number' && Number.isSafeInteger(step) && step >= 0;
  return { wallTime, step: known ? step : 0, scalars: known ? scalarsOf(line) : [] };
}

/**
 * Every number of a line of metrics.jsonl by its tag: its key after the line's `phase` where it has one, and after `validation/` where
 * the line is an evaluation: `ppo/value_loss`, `ppo/validation/acc_pos`. Nested ones are joined by slashes.
 */
export function scalarsOf(line: Metrics): [string, number][] {
  const { phase, step: _, ...metrics } = line;
  const prefix = typeof phase === 'string' ? `${phase}/` : '';
  const keyOf = curveKeys(line);
  return numbers(metrics, '').map(([key, value]) => [prefix + keyOf(key), value]);
}

function numbers(metrics: Metrics, prefix: string): [string, number][] {
  return Object.entries(metrics).flatMap(([name, value]): [string, number][] => {
    if (typeof value === 'number') return [[prefix + name, value]];
    if (typeof value !== 'object' || value === null) return [];
    return numbers(value as Metrics, `${prefix}${name}/`);
  });
}
