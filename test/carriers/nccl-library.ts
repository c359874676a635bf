/** A library that stands for NCCL (mock-nccl.cc), compiled for the tests of a file. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

export const hasCompiler = spawnSync('g++', ['--version']).status === 0;

/** @returns its path */
export function compileMockNccl(folder: string): string {
  const library = join(folder, 'libnccl.so.2');
  const source = new URL('mock-nccl.cc', import.meta.url).pathname;
  const flags = ['-std=c++20', '-shared', '-fPIC', '-pthread', '-Wall', '-Werror', source, '-o', library];
  const { status, stderr } = spawnSync('g++', flags, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return library;
}
