/** Files and directories that are being written: where the process ends before they are whole, they go with it. */
import { rmSync } from 'node:fs';
import { attempt } from '../native/attempt.js';

const paths = new Set<string>();

/** Marks `path` as unfinished until the returned function is called, when it is whole or gone. */
export function unfinished(path: string): () => void {
  if (paths.size === 0) process.on('exit', remove);
  paths.add(path);
  return () => {
    paths.delete(path);
    if (paths.size === 0) process.off('exit', remove);
  };
}

/** Whether anything is being written now. */
export function isWriting(): boolean {
  return paths.size > 0;
}

function remove(): void {
  // The process ends either way, and the name of what stays says that the file was never finished.
  for (const path of paths) attempt(() => rmSync(path, { recursive: true, force: true }));
}
