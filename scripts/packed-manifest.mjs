// package.json as it is packed: without `prepare`, which is for clones and git dependencies. Of a package from a tarball npm never
// runs it, but lists it at every installation as a script that nobody has reviewed. The addons, which a git dependency carries
// itself, are packages of their own there.
//   node scripts/packed-manifest.mjs             before npm packs
//   node scripts/packed-manifest.mjs --restore   afterwards
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { optionalDependencies } from './build/platforms.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const manifest = join(root, 'package.json');
const whole = join(root, 'build/package.json');

const restore = () => existsSync(whole) && renameSync(whole, manifest);

// Also what a pack that was killed has left.
restore();
if (process.argv[2] !== '--restore') {
  const text = readFileSync(manifest, 'utf8');
  const packed = JSON.parse(text);
  delete packed.scripts.prepare;
  packed.files = packed.files.filter((name) => name !== 'prebuilds');
  packed.optionalDependencies = optionalDependencies(packed);
  mkdirSync(join(root, 'build'), { recursive: true });
  writeFileSync(whole, text);
  writeFileSync(manifest, `${JSON.stringify(packed, null, 2)}\n`);
}
