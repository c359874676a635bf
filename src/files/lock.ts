// Locks a run directory for one process.
import { readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { FileError, systemReason } from './error.js';

export const LOCK = '.lock';

/** The owner touches the lock at this interval; to other machines that is the only sign that it is alive. */
const TOUCH_MS = 20_000;
const SILENT_MS = 6 * TOUCH_MS;

/** Locks of this process: a restarted container may have the process id of the previous run. */
const held = new Set<string>();

export type Unlock = () => Promise<void>;

/** Takes the lock and returns the function that gives it back. Throws FileError if another process holds it. */
export async function lockDirectory(path: string): Promise<Unlock> {
  const lock = await tryLock(path);
  if (typeof lock === 'function') return lock;
  throw new FileError(
    `${path} is in use by process ${lock.owner}; stop that one first, or delete ${join(path, LOCK)} if it is gone`,
  );
}

/** The same, but returns the owner if the directory is in use. A lock whose process is gone is taken over. */
export async function tryLock(path: string): Promise<Unlock | { readonly owner: string }> {
  const lock = join(path, LOCK);
  for (let attempt = 0; ; attempt++) {
    try {
      await writeFile(lock, `${process.pid} ${hostname()}\n`, { flag: 'wx' });
      break;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'EEXIST')
        throw new FileError(`cannot write ${lock}: ${systemReason(error)}`, { cause: error });
    }
    const [pid, host] = (await readFile(lock, 'utf8').catch(() => '')).trim().split(' ');
    if (attempt > 0 || !(await isGone(lock, Number(pid), host))) return { owner: `${pid} on ${host}` };
    await rm(lock, { force: true });
  }
  held.add(lock);
  const touch = setInterval(() => {
    const now = new Date();
    utimes(lock, now, now).catch(() => {}); // training continues even if the lock was deleted
  }, TOUCH_MS);
  touch.unref();
  return async () => {
    clearInterval(touch);
    held.delete(lock);
    await rm(lock, { force: true });
  };
}

async function isGone(lock: string, pid: number, host: string | undefined): Promise<boolean> {
  if (host !== hostname()) {
    const touched = await stat(lock).then(
      (info) => info.mtimeMs,
      () => 0,
    );
    return Date.now() - touched > SILENT_MS;
  }
  if (pid === process.pid) return !held.has(lock);
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'EPERM';
  }
}
