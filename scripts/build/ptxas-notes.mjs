// Starts nvcc, as CMake's launcher in a strict build, and fails where ptxas notes that it serialises products (C7510 to C7518, C7520). It
// says so as information, which no -Werror stops. C7519, an arrive that it adds, is no such note.
//   node scripts/build/ptxas-notes.mjs [ccache] nvcc ARGUMENTS…
import { spawnSync } from 'node:child_process';

const [command, ...args] = process.argv.slice(2);
const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28 });
if (error) throw error;
process.stdout.write(stdout);
process.stderr.write(stderr);
const serialised = `${stdout}\n${stderr}`.split('\n').filter((line) => /\(C75(?!19)\d\d\)/.test(line));
for (const line of serialised) console.error(`steptrain: refused in a strict build: ${line.trim()}`);
process.exitCode = serialised.length > 0 ? 1 : (status ?? 1);
