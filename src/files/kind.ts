import { statSync } from 'node:fs';
import { attempt } from '../native/attempt.js';

/** The kind of file at a path; undefined where there is none, or it is unknown: opening it gives the reason. */
export function fileKind(path: string): 'directory' | 'file' | 'other' | undefined {
  return attempt(() => {
    const status = statSync(path);
    return status.isDirectory() ? 'directory' : status.isFile() ? 'file' : 'other';
  });
}
