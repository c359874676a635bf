// Whether something that was built is still of its sources. Stamps hold hashes of what files contain, so a checkout that was
// moved, copied or restored from an archive is as fresh as it was.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/** Files under `paths` of `root` whose name ends in one of `extensions`; a path may be a file. */
export function sources(root, paths, extensions) {
  return paths.flatMap((path) => {
    const full = join(root, path);
    if (!existsSync(full)) return [];
    if (statSync(full).isFile()) return [full];
    return readdirSync(full, { recursive: true })
      .map((name) => join(full, name))
      .filter((name) => extensions.some((extension) => name.endsWith(extension)));
  });
}

/** `read`: the content of a file that counts. */
export function contentHash(root, files, read = (file) => readFileSync(file)) {
  const hash = createHash('sha256');
  for (const file of [...files].sort())
    hash
      .update(`${relative(root, file)}\0`)
      .update(read(file))
      .update('\0');
  return hash.digest('hex');
}

/** What was written with the last success; undefined where nothing readable was. */
export function readStamp(root, name) {
  try {
    return JSON.parse(readFileSync(stampPath(root, name), 'utf8'));
  } catch {
    return undefined;
  }
}

export function writeStamp(root, name, stamp) {
  const path = stampPath(root, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(stamp)}\n`);
}

export function removeStamp(root, name) {
  rmSync(stampPath(root, name), { force: true });
}

const stampPath = (root, name) => join(root, 'build', `${name}.stamp`);
