import { statSync } from 'node:fs';

/** What stands at a path; undefined where nothing does, or nobody can tell: who opens it says why. */
export function fileKind(path: string): 'directory' | 'file' | 'other' | undefined {
  try {
    const status = statSync(path);
    return status.isDirectory() ? 'directory' : status.isFile() ? 'file' : 'other';
  } catch {
    return undefined;
  }
}
