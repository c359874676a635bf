import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Absolute path of a file in the shared folder (real data, golden models); undefined if it is absent. */
export function sharedPath(relative: string): string | undefined {
  const path = resolve(process.env.STEPTRAIN_SHARED ?? resolve(root, '../shared'), relative);
  return existsSync(path) ? path : undefined;
}
