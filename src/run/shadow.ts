/**
 * The run directory of a process that is not the first of its job: it computes what the first one computes, and writes it where
 * nobody looks. It begins with what the first one has written; checkpoints it reads and does not write.
 */
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findCheckpoint } from './checkpoint.js';
import { openRunDirectory, type RunDirectory, readRunConfig } from './directory.js';
import { RunError } from './error.js';

/** What only the first process needs. */
const ONLY_FIRST = /^(checkpoints|tensorboard|ranks|\.lock.*|.*\.tmp-.*|adapter.*|report\.html)$/;

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
  const own = mkdtempSync(join(tmpdir(), 'steptrain-rank-'));
  const remove = () => rmSync(own, { recursive: true, force: true });
  try {
    for (const name of readdirSync(path))
      if (!ONLY_FIRST.test(name)) cpSync(join(path, name), join(own, name), { recursive: true });
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
