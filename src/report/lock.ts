/** Whether a process works on a run, as its lock says; nothing is taken or changed. */
import { readFileSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { LOCK } from '../files/lock.js';

/** The owner of a lock touches it every 20 seconds. */
const SILENT_MS = 120_000;

/** `PID on HOST`; undefined where nobody works there. */
export function ownerOf(path: string): string | undefined {
  const lock = join(path, LOCK);
  try {
    const [pid = '', host = ''] = readFileSync(lock, 'utf8').trim().split(' ');
    const isAlive =
      host === hostname() ? exists(Number(pid)) : Date.now() - statSync(lock).mtimeMs < SILENT_MS;
    return isAlive ? `${pid} on ${host}` : undefined;
  } catch {
    return undefined;
  }
}

function exists(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
