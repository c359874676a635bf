import { open, rename, rm } from 'node:fs/promises';

/**
 * Moves the directory `from` to `to`, in place of what is there. rename() cannot replace a directory that has files, so
 * the old one is moved to `to`-replaced.partial until the new one is in place.
 */
export async function replaceDirectory(from: string, to: string): Promise<void> {
  const aside = `${to}-replaced.partial`;
  await rm(aside, { recursive: true, force: true });
  const old = await rename(to, aside).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false;
      throw error;
    },
  );
  try {
    await rename(from, to);
  } catch (error) {
    if (old) await rename(aside, to);
    throw error;
  }
  if (old) await rm(aside, { recursive: true, force: true });
}

/** Makes new and renamed entries of `path` durable. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
