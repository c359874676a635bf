// Which sources of the CUDA device passed all their tests on the emulator: verified.json beside this file has their hash, and
// `npm run test:emulated` writes it. As a program, fails where the sources are others: then CI runs the emulator, which takes minutes.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { contentHash, sources } from '../../../scripts/build/fresh.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../../..');
const path = join(here, 'verified.json');

/** The text of a test with the names that it imports from src/, sorted: a module may move, and the type check finds it. */
function counted(file) {
  if (!file.endsWith('.ts')) return readFileSync(file);
  const names = [];
  const rest = readFileSync(file, 'utf8').replaceAll(IMPORT, (_, imported) => {
    names.push(imported);
    return '';
  });
  return [...names.sort(), rest].join('\n');
}
const IMPORT = /^import ([^;]*) from '(?:\.\.\/)+src\/[^']+';\n/gm;

/** Of the sources as they are now: taken before they are built, it is theirs that the tests saw. */
export function sourcesHash() {
  const endings = ['.cc', '.h', '.cu', '.cuh', '.cmake', '.mjs', '.ts'];
  return contentHash(root, sources(root, ['core', 'cuda', 'test/cuda'], endings), counted);
}

export function markVerified(tested) {
  writeFileSync(path, `${JSON.stringify({ sources: tested })}\n`);
}

function isVerified() {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).sources === sourcesHash();
  } catch {
    return false;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(isVerified() ? 0 : 1);
