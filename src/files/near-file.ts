/** Proposes the file that somebody may have meant by a path that leads nowhere. */
import { readdirSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { attempt } from '../native/attempt.js';
import { nearestName } from '../native/nearest.js';

/**
 * `; did you mean X?` with the closest name beside `path`, or nothing where none is close or `path` is there.
 *
 * @param cwd folder from which `path` goes
 */
export function orNearFile(path: string, cwd = '.'): string {
  const name = basename(path);
  const names = attempt(() => readdirSync(resolve(cwd, dirname(path))));
  if (names === undefined) return '';
  const near = names.includes(name) ? undefined : nearestName(name, names);
  if (near === undefined) return '';
  // The path as typed, up to the name.
  return `; did you mean ${path.slice(0, path.length - name.length)}${near}?`;
}
