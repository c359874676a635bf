import { fileURLToPath } from 'node:url';

/** Path of a file or directory of test/golden. */
export function goldenPath(path: string): string {
  return fileURLToPath(new URL(`../golden/${path}`, import.meta.url));
}
