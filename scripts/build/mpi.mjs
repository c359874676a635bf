// Compiles carriers/mpi.cc with the mpicxx of this machine, whose MPI is the one that will have started the processes.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './compile.mjs';
import { onPath } from './machine.mjs';

export const PLUGIN = 'build/Release/steptrain_mpi.so';

/** Throws an Error whose message is for people. */
export async function compileMpi(root, { verbose }) {
  if (!onPath('mpicxx'))
    throw new Error(
      'compiling the MPI plugin needs mpicxx: load the module of your MPI, or apt-get install libopenmpi-dev',
    );
  mkdirSync(join(root, 'build/Release'), { recursive: true });
  const flags = ['-std=c++17', '-O2', '-Wall', '-Wextra', '-shared', '-fPIC', '-fvisibility=hidden'];
  await run(root, 'mpicxx', [...flags, '-I.', 'carriers/mpi.cc', '-o', PLUGIN], { verbose });
}
