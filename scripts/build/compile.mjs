// Compiles the addon: CMake configures, by cmake-js in a clone; an installed package has no development dependencies.
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onPath } from './machine.mjs';
import { duration, outdated, Progress, say } from './progress.mjs';

const require = createRequire(import.meta.url);

/**
 * Throws an Error whose message is for people. `verbose`: what the compilers say is passed on as they
 * say it. `force`: nothing of before is used. `folder` is what CMake fills, and `cross` its settings for another processor.
 */
export async function compileAddon(
  root,
  { isas, cuda, why },
  { strict, verbose, force, folder = 'build', cross = [] },
) {
  const build = join(root, folder);
  if (force) rmSync(join(build, 'CMakeFiles'), { recursive: true, force: true });
  const definitions = [
    `STEPTRAIN_STRICT=${strict ? 'ON' : 'OFF'}`,
    `STEPTRAIN_ISAS=${isas.join(';')}`,
    `STEPTRAIN_UNITS=${process.env.STEPTRAIN_UNITS === '0' ? 'OFF' : 'ON'}`,
    `STEPTRAIN_CUDA=${cuda ? 'ON' : 'OFF'}`,
    ...cross,
    ...(cuda ? [`STEPTRAIN_CUDA_ARCHS=${cuda.architectures}`, `CMAKE_CUDA_COMPILER=${cuda.nvcc}`] : []),
  ];
  // It is configured from the beginning: the settings may be others, and the cache that of a checkout that was moved.
  rmSync(join(build, 'CMakeCache.txt'), { force: true });
  await configure(root, build, definitions, { strict, verbose });
  const units = outdated(build);
  const processors = Math.max(1, Math.min(availableParallelism(), units.length));
  const seconds = units.reduce((sum, unit) => sum + unit.seconds, 0) / processors;
  const gpus = cuda ? `, CUDA for ${cuda.architectures}` : why ? `, without CUDA (${why})` : '';
  const on = `${processors} processor${processors === 1 ? '' : 's'}`;
  say(
    `compiling the addon for ${isas.join(', ')}${gpus}: ${units.length} units, about ${duration(seconds)} on ${on}`,
  );
  const progress = verbose ? undefined : new Progress(units, processors);
  try {
    const parallel = ['--parallel', String(availableParallelism())];
    await run(root, 'cmake', ['--build', build, ...parallel], {
      verbose,
      line: (text) => progress?.line(text),
    });
  } finally {
    progress?.end();
  }
}

/** The programs that start the compilers, by CMake's variables: ccache where it is found; in a strict build one that refuses notes of ptxas. */
export function launchers(strict, hasCcache = onPath('ccache')) {
  const cached = hasCcache ? ['ccache'] : [];
  const notes = strict ? [process.execPath, fileURLToPath(new URL('ptxas-notes.mjs', import.meta.url))] : [];
  const each = { CMAKE_CXX_COMPILER_LAUNCHER: cached, CMAKE_CUDA_COMPILER_LAUNCHER: [...notes, ...cached] };
  return Object.fromEntries(
    Object.entries(each).flatMap(([name, words]) => (words.length > 0 ? [[name, words.join(';')]] : [])),
  );
}

async function configure(root, build, definitions, { strict, verbose }) {
  const env = launchers(strict);
  const cmakeJs = optional('cmake-js/bin/cmake-js');
  if (cmakeJs) {
    const args = [
      cmakeJs,
      'configure',
      '--prefer-make',
      '--out',
      build,
      ...definitions.map((each) => `--CD${each}`),
    ];
    await run(root, process.execPath, args, { env, verbose });
    return;
  }
  const paths = [
    'CMAKE_BUILD_TYPE=Release',
    `CMAKE_LIBRARY_OUTPUT_DIRECTORY=${join(build, 'Release')}`,
    `CMAKE_JS_INC=${require('node-api-headers').include_dir}`,
    `NODE_ADDON_API=${dirname(require.resolve('node-addon-api/package.json'))}`,
  ];
  const args = ['-S', root, '-B', build, ...[...definitions, ...paths].map((each) => `-D${each}`)];
  await run(root, 'cmake', args, { env, verbose });
}

function optional(module) {
  try {
    return require.resolve(module);
  } catch {
    return undefined;
  }
}

/** `line` gets what the command prints, line by line. Throws an Error with all of that where it fails. */
export async function run(root, command, args, { env = {}, verbose = false, line } = {}) {
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: verbose ? ['ignore', 2, 2] : ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  let rest = '';
  child.stderr?.setEncoding('utf8').on('data', (text) => {
    said += text;
  });
  child.stdout?.setEncoding('utf8').on('data', (text) => {
    said += text;
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const each of lines) line?.(each);
  });
  const status = await new Promise((done, failed) => child.on('close', done).on('error', failed));
  if (status !== 0)
    throw new Error(`${said}\nsteptrain: ${command} ${args.join(' ')} failed; the lines above say why`);
}
