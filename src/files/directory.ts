import fs, { existsSync } from 'node:fs';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';

/**
 * Moves the directory `from` to `to`, and replaces an existing one. rename() cannot replace a directory that has files,
 * so the old one is moved to `to`-replaced.partial until the new one is in place.
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

/**
 * Makes a directory and those above it, as `mkdir` with `recursive`, which in Node 20 never returns where a folder exists in which
 * none can be made, such as /proc.
 */
export async function makeDirectories(path: string): Promise<void> {
  const wanted = resolve(path);
  try {
    await mkdir(wanted);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' && (await stat(wanted)).isDirectory()) return;
    if (code !== 'ENOENT') throw error;
    if (!existsSync(dirname(wanted))) await makeDirectories(dirname(wanted));
    // A parent that is there now may have been made by somebody else since.
    await mkdir(wanted).catch(async (again: NodeJS.ErrnoException) => {
      if (again.code !== 'EEXIST' || !(await stat(wanted)).isDirectory()) throw again;
    });
  }
}

/** Makes what was written to an open file durable; by its descriptor, since the handles of Yarn's Plug'n'Play have no `sync`. */
export const syncFile: (file: { readonly fd: number }) => Promise<void> = ({ fd }) => promisify(fs.fsync)(fd);

/** Makes new and renamed entries of `path` durable. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await syncFile(directory);
  } finally {
    await directory.close();
  }
}
