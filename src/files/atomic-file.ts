/** Atomic file writes: a temporary file in the same directory, fsync, rename, fsync of the directory. */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { dirname } from 'node:path';
import { syncDirectory, syncFile } from './directory.js';
import { FileError, systemReason } from './error.js';
import { unfinished } from './unfinished.js';

/** The names of temporary files, which stay behind where a process was killed. */
export const TEMPORARY = /\.tmp-\d+-[0-9a-f]{12}$/;

export type FileChunks = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/**
 * Replaces `path` by the given bytes. On any failure (a full disk, an exception of `chunks`) the old file is unchanged and
 * no temporary file remains, nor where the process exits meanwhile.
 *
 * @throws FileError with the reason of a failed system call; whatever `chunks` throws
 */
export async function writeFileAtomically(path: string, chunks: FileChunks): Promise<void> {
  const temporary = `${path}.tmp-${process.pid}-${randomBytes(6).toString('hex')}`;
  const attempt = async <T>(call: () => Promise<T>): Promise<T> => {
    try {
      return await call();
    } catch (error) {
      throw new FileError(`cannot write ${path}: ${systemReason(error)}`, { cause: error });
    }
  };
  const whole = unfinished(temporary);
  try {
    const file = await attempt(() => fs.promises.open(temporary, 'wx'));
    try {
      for await (const chunk of chunks) await attempt(() => writeFully(file, chunk));
      await attempt(() => syncFile(file));
    } finally {
      await attempt(() => file.close());
    }
    await attempt(() => fs.promises.rename(temporary, path));
  } catch (error) {
    // If it cannot be removed, as below a path that is no directory, the first error says why.
    await fs.promises.rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  } finally {
    whole();
  }
  await attempt(() => syncDirectory(dirname(path)));
}

async function writeFully(file: fs.promises.FileHandle, bytes: Uint8Array): Promise<void> {
  let written = 0;
  while (written < bytes.length) {
    written += (await file.write(bytes, written, Math.min(bytes.length - written, 64 * 1024 * 1024)))
      .bytesWritten;
  }
}
