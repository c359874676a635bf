// Locks a run directory for one thread of one process.
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { link, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { attempt } from '../native/attempt.js';
import { FileError, systemReason } from './error.js';

export const LOCK = '.lock';
/** Suffix of a second file, which exists while a stale lock is taken over. */
const TAKING = '.taking';
const TURN = 'another one, which is taking over a lock that was left';
const TURN_MS = 500;

/** The owner touches the lock at this interval; to other machines that is the only sign that it is alive. */
const TOUCH_MS = 20_000;
const SILENT_MS = 6 * TOUCH_MS;

/** Error codes of `link` on file systems without hard links. */
const NO_LINKS = new Set<string | undefined>(['EPERM', 'EOPNOTSUPP', 'ENOTSUP', 'ENOSYS']);

/** Locks that this thread holds or is taking; another thread of the process has its own set. */
const held = new Set<string>();

export type Unlock = () => Promise<void>;

/** Takes the lock and returns the function that gives it back. Throws FileError if another process holds it. */
export async function lockDirectory(path: string): Promise<Unlock> {
  let lock = await tryLock(path);
  if (typeof lock !== 'function' && lock.owner === TURN) {
    await sleep(TURN_MS);
    lock = await tryLock(path);
  }
  if (typeof lock === 'function') return lock;
  throw new FileError(
    `${path} is in use by process ${lock.owner}; stop that one first, or delete ${join(path, LOCK)} if it is gone`,
  );
}

/** The same, but returns the owner if the directory is in use. A lock whose process or thread is gone is taken over. */
export async function tryLock(path: string): Promise<Unlock | { readonly owner: string }> {
  const lock = resolve(path, LOCK);
  // Checked before the file exists: between its creation and the next line another opener would find it without an
  // owner.
  if (held.has(lock)) return { owner: `${process.pid} on ${hostname()}` };
  held.add(lock);
  let owner: string | undefined;
  try {
    owner = await otherOwner(lock);
  } catch (error) {
    held.delete(lock);
    throw new FileError(`cannot write ${lock}: ${systemReason(error)}`, { cause: error });
  }
  if (owner !== undefined) {
    held.delete(lock);
    return { owner };
  }
  const touch = setInterval(() => {
    const now = new Date();
    utimes(lock, now, now).catch(() => {}); // training continues even if the lock was deleted
  }, TOUCH_MS);
  touch.unref();
  return async () => {
    clearInterval(touch);
    await rm(lock, { force: true });
    held.delete(lock);
  };
}

/** Whether a process works in the directory, as its lock says; nothing is taken or changed. */
export async function isLocked(path: string): Promise<boolean> {
  const lock = join(path, LOCK);
  return existsSync(lock) && !(await isGone(lock, await ownerOf(lock)));
}

/** Writes the lock; who holds it, where another process does. */
async function otherOwner(lock: string): Promise<string | undefined> {
  if (await created(lock)) return undefined;
  const owner = await ownerOf(lock);
  if (!(await isGone(lock, owner))) return named(owner);
  // Only one of several that find a lock without an owner may remove it, or a second would remove the new one.
  const turn = `${lock}${TAKING}`;
  if (!(await created(turn))) {
    // Left by one that was killed in its turn. Whoever removes it waits before the next try, or a second that found it as
    // it was would remove the new one.
    if (await isGone(turn, await ownerOf(turn))) await rm(turn, { force: true });
    return TURN;
  }
  try {
    if (await isGone(lock, await ownerOf(lock))) await rm(lock, { force: true });
    if (await created(lock)) return undefined;
  } finally {
    await rm(turn, { force: true });
  }
  return named(await ownerOf(lock));
}

/** Its process may have created the file but not yet written its name. */
const named = ({ pid, host }: Owner) => (host === undefined ? 'another one' : `${pid} on ${host}`);

/**
 * Creates a file; false where it exists already. It appears with its owner's name in it: a process killed between
 * creation and writing would leave a lock without an owner.
 */
async function created(file: string): Promise<boolean> {
  const thread = thisThread();
  const start = startOf(process.pid, thread);
  const known = start === undefined ? [] : [start, thread];
  const owner = `${[process.pid, hostname(), ...known].join(' ')}\n`;
  const named = `${file}.tmp-${process.pid}-${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(named, owner, { flag: 'wx' });
    await link(named, file);
    return true;
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException;
    // The holder of a lock removes the remains of others.
    if (code === 'EEXIST' || (code === 'ENOENT' && syscall === 'link')) return false;
    if (NO_LINKS.has(code)) return createdInPlace(file, owner);
    throw error;
  } finally {
    await rm(named, { force: true }).catch(() => {});
  }
}

/** The same on a file system without hard links. */
async function createdInPlace(file: string, owner: string): Promise<boolean> {
  try {
    await writeFile(file, owner, { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    await rm(file, { force: true }).catch(() => {}); // on a full disk the file exists and is empty
    throw error;
  }
}

interface Owner {
  readonly pid: number;
  readonly host: string | undefined;
  /** See `startOf`. */
  readonly start: string | undefined;
  readonly thread: number;
}

/** The system's id of the thread that runs this; that of a process is its main thread's. */
function thisThread(): number {
  return attempt(() => Number(readlinkSync('/proc/thread-self').split('/').at(-1)), process.pid);
}

/** When a thread of this machine began, in ticks since the machine did: with it an id is never another thread's. */
function startOf(pid: number, thread: number): string | undefined {
  // The name of the program, in brackets, may hold anything.
  return attempt(
    () => readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[19],
  );
}

async function ownerOf(lock: string): Promise<Owner> {
  const [pid, host, start, thread] = (await readFile(lock, 'utf8').catch(() => '')).trim().split(' ');
  return { pid: Number(pid), host, start, thread: Number(thread ?? pid) };
}

async function isSilent(file: string): Promise<boolean> {
  const touched = await stat(file).then(
    (info) => info.mtimeMs,
    () => Number.POSITIVE_INFINITY, // given back in the meantime
  );
  return Date.now() - touched > SILENT_MS;
}

async function isGone(lock: string, { pid, host, start, thread }: Owner): Promise<boolean> {
  if (host !== hostname()) return isSilent(lock);
  // A restarted container may have the process ids of its last run; in a process that can be inspected, every thread
  // can be.
  if (start !== undefined && startOf(pid, pid) !== undefined) return startOf(pid, thread) !== start;
  // This process would have written its start; an earlier one with its id did not.
  if (pid === process.pid) return start === undefined;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'EPERM';
  }
}
