// Formats the C++ and CUDA sources, or with --check says which are not formatted.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const files = ['binding', 'carriers', 'core', 'cpu', 'cuda'].flatMap((room) =>
  readdirSync(join(root, room), { recursive: true })
    .filter((name) => /\.(cc|h|cu|cuh)$/.test(name))
    .map((name) => join(room, name)),
);
const mode = process.argv.includes('--check') ? ['--dry-run', '--Werror'] : ['-i'];
const { status, error } = spawnSync('clang-format', [...mode, ...files], { cwd: root, stdio: 'inherit' });
if (error) {
  console.error(`clang-format did not start (${error.message}); on Debian: apt-get install clang-format`);
  process.exit(1);
}
process.exit(status ?? 1);
