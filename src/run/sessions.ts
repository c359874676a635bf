/** The times at which the processes of a run began and ended, so that its pauses are known. */
import { existsSync } from 'node:fs';
import { type LogFile, openLogFile, readLog } from './log-file.js';

/** The file in the directory of a run. */
export const SESSIONS = 'sessions.jsonl';

/** One process of a run, in seconds since 1970. */
export interface Session {
  readonly begun: number;
  /** Absent where it still runs, or was killed and nothing went on since. */
  readonly ended?: number;
}

export interface OpenSession {
  /** Writes the beginning, once: a process that logs nothing leaves no session. */
  begin(): void;
  /** Writes the end of what has begun. */
  end(): void;
}

/**
 * The session of this process, from now on. A file that cannot be written leaves a page without pauses; it ends no run.
 *
 * @param path its file
 * @param lastLogged time of the last line that the run had logged, which ends a session that was killed
 */
export function openSession(
  path: string,
  lastLogged: number | undefined,
  { now = Date.now }: { /** Milliseconds. */ readonly now?: () => number } = {},
): OpenSession {
  const begun = now() / 1000;
  let log: LogFile | undefined;
  let isBegun = false;
  return {
    begin() {
      if (isBegun) return;
      isBegun = true;
      try {
        const before = readSessions(path).at(-1);
        log = openLogFile(path);
        if (before && before.ended === undefined)
          log.append({ ended: Math.max(before.begun, Math.min(begun, lastLogged ?? before.begun)) });
        log.append({ begun });
      } catch {}
    },
    end() {
      try {
        log?.append({ ended: now() / 1000 });
        log?.close();
      } catch {}
      log = undefined;
    },
  };
}

/** The sessions of a run, in order; empty where they are not known. */
export function readSessions(path: string): Session[] {
  const found: Session[] = [];
  try {
    for (const { begun, ended } of existsSync(path) ? readLog(path) : []) {
      if (typeof begun === 'number') found.push({ begun });
      else if (typeof ended === 'number') found.push({ begun: ended, ...found.pop(), ended });
    }
  } catch {
    return [];
  }
  return found;
}
