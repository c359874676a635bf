/**
 * The run directory of a process that is not the first of its job. It computes the same as the first one, and writes it
 * into a temporary directory, which begins with the first one's files. It reads checkpoints but does not write them.
 */
import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isLocked, LOCK } from '../files/lock.js';
import { attempt } from '../native/attempt.js';
import { findCheckpoint } from './checkpoint.js';
import { GOES_ON_FROM, openRunDirectory, type RunDirectory, readRunConfig } from './directory.js';
import { RunError } from './error.js';

const PREFIX = 'steptrain-rank-';

/**
 * @param path the run directory of the first process, which writes nothing meanwhile
 * @throws RunError where this machine does not see it
 */
export async function shadowRunDirectory(path: string): Promise<RunDirectory> {
  await readRunConfig(path).catch((cause) => {
    throw new RunError(
      `${path} of rank 0 cannot be read here: the run directory must be on a file system that all machines share`,
      { cause },
    );
  });
  await removeLeft();
  const own = mkdtempSync(join(tmpdir(), PREFIX));
  const remove = () => rmSync(own, { recursive: true, force: true });
  try {
    for (const name of GOES_ON_FROM)
      if (existsSync(join(path, name))) cpSync(join(path, name), join(own, name), { recursive: true });
    const copied = await openRunDirectory(own);
    const close = async () => {
      await copied.close();
      remove();
    };
    return {
      ...copied,
      findCheckpoint: () => findCheckpoint(join(path, 'checkpoints')),
      saveCheckpoint: async (step) => ({ path: join(path, 'checkpoints', `step-${step}`), step, logs: {} }),
      close,
      discard: close,
    };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Removes the directories of processes that were killed. */
async function removeLeft(): Promise<void> {
  // Some systems have a folder that may be written to but not listed.
  for (const name of attempt(() => readdirSync(tmpdir()), [])) {
    const left = join(tmpdir(), name);
    if (!name.startsWith(PREFIX) || !existsSync(join(left, LOCK)) || (await isLocked(left))) continue;
    // It fails on another user's.
    attempt(() => rmSync(left, { recursive: true, force: true }));
  }
}
