import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { typedCommand } from '../native/typed-command.js';
import { command, flag } from './line/command.js';
import { UsageError } from './line/error.js';

export const buildCommand = command({
  command: 'build',
  describe: 'Compile the native addon on this machine, instead of the prebuilt one',
  builder: (argv) =>
    argv
      .option('all', {
        ...flag,
        describe: 'For every machine: all instruction sets, and CUDA if nvcc is found',
      })
      .option('cuda', {
        type: 'boolean',
        describe: 'With CUDA kernels. Default: where there are a GPU and nvcc, for that GPU',
      })
      .option('mpi', {
        ...flag,
        describe:
          'The MPI plugin alone, with the mpicxx of this machine: what runs under mpirun then talk through',
      })
      .option('force', { ...flag, describe: 'Also if nothing has changed' })
      .option('verbose', { ...flag, describe: 'Show what the compilers say' })
      .example('$0 build', 'where the prebuilt addon does not load, or for the CUDA toolkit of this machine')
      .example('$0 build --no-cuda', 'for the CPU alone')
      .example('$0 build --mpi', 'on a cluster, once its MPI is loaded')
      .example('$0 build --all', 'to be used on other machines too'),
  handler: async ({ all, cuda, mpi, force, verbose }) => {
    const script = fileURLToPath(new URL('../../scripts/build.mjs', import.meta.url));
    const flags = Object.entries({ all, force, verbose }).flatMap(([name, on]) => (on ? [`--${name}`] : []));
    const parts = mpi ? ['--no-typescript', '--no-addon', '--mpi'] : ['--no-typescript'];
    const child = spawn(process.execPath, [script, ...parts, ...flags], {
      stdio: 'inherit',
      env: { ...process.env, ...(cuda === undefined ? {} : { STEPTRAIN_CUDA: cuda ? '1' : '0' }) },
    });
    const code = await new Promise((done, reject) => child.on('close', done).on('error', reject));
    const what = mpi ? 'MPI plugin' : 'addon';
    if (code !== 0) throw new UsageError(`the ${what} was not compiled; the lines above say why`);
    console.error(
      mpi ? 'compiled; runs under mpirun use it' : `compiled; ${typedCommand('doctor')} tests it`,
    );
  },
});
