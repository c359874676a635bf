// Builds the addon and the TypeScript, each only when its sources changed: `npx` in a clone calls this again and
// must not wait. Flags: --force, --no-addon, --no-typescript, --bench (also the benchmarks and examples), --verbose (what the
// compilers say, as they say it).
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);
const flags = new Set(process.argv.slice(2));

/** Files under `paths` whose name ends in one of `extensions`. */
function sources(paths, extensions) {
  return paths.flatMap((path) => {
    const full = join(root, path);
    if (!existsSync(full)) return [];
    if (statSync(full).isFile()) return [full];
    return readdirSync(full, { recursive: true })
      .map((name) => join(full, name))
      .filter((name) => extensions.some((extension) => name.endsWith(extension)));
  });
}

/** Runs `build` unless `files` and `settings` are those of the last success. */
function step(name, files, settings, output, build) {
  const stamp = join(root, 'build', `${name}.stamp`);
  const hash = createHash('sha256').update(JSON.stringify(settings));
  for (const file of files.sort()) {
    const { mtimeMs, size } = statSync(file);
    hash.update(`${file}\0${mtimeMs}\0${size}\n`);
  }
  const digest = hash.digest('hex');
  const fresh = existsSync(stamp) && readFileSync(stamp, 'utf8') === digest && existsSync(join(root, output));
  if (fresh && !flags.has('--force')) return;
  build();
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, digest);
}

function run(command, args, env = {}) {
  const result = spawnSync(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: flags.has('--verbose') ? ['ignore', 2, 2] : 'pipe',
  });
  if (result.status === 0) return;
  process.stderr.write(`${result.stdout ?? ''}${result.stderr ?? ''}${result.error ?? ''}\n`);
  console.error(`steptrain: ${command} ${args.join(' ')} failed; the lines above say why`);
  process.exit(1);
}

function onPath(command, before = [], after = []) {
  const folders = [...before, ...(process.env.PATH ?? '').split(delimiter), ...after];
  return folders.map((folder) => join(folder, command)).find((path) => existsSync(path));
}

function findNvcc() {
  if (process.env.STEPTRAIN_CUDA === '0') return undefined;
  const home = process.env.CUDA_HOME ?? process.env.CUDA_PATH;
  return onPath('nvcc', home ? [join(home, 'bin')] : [], ['/usr/local/cuda/bin']);
}

function buildAddon() {
  const nvcc = existsSync(join(root, 'cuda/cuda.cmake')) ? findNvcc() : undefined;
  const archs = process.env.STEPTRAIN_CUDA_ARCHS ?? '80;90a';
  const files = sources(
    ['core', 'cpu', 'cuda', 'binding', 'CMakeLists.txt'],
    ['.cc', '.h', '.cu', '.cuh', '.cmake'],
  );
  const strict = process.env.STEPTRAIN_STRICT === '1';
  step('addon', files, { nvcc, archs, strict }, 'build/Release/steptrain.node', () => {
    console.error(
      nvcc
        ? `steptrain: building the addon for the CPU and CUDA (${archs}); the first time takes minutes`
        : 'steptrain: building the addon for the CPU alone (no nvcc found: no CUDA device)',
    );
    const definitions = [
      `STEPTRAIN_STRICT=${strict ? 'ON' : 'OFF'}`,
      `STEPTRAIN_CUDA=${nvcc ? 'ON' : 'OFF'}`,
    ];
    if (nvcc) definitions.push(`STEPTRAIN_CUDA_ARCHS=${archs}`, `CMAKE_CUDA_COMPILER=${nvcc}`);
    // It is configured only once; a changed list of files needs it again.
    rmSync(join(root, 'build/CMakeCache.txt'), { force: true });
    compile(definitions, {
      CMAKE_BUILD_PARALLEL_LEVEL: String(availableParallelism()),
      ...(onPath('ccache')
        ? { CMAKE_CXX_COMPILER_LAUNCHER: 'ccache', CMAKE_CUDA_COMPILER_LAUNCHER: 'ccache' }
        : {}),
    });
  });
}

/** By cmake-js in a clone; the installed package has no development dependencies and calls CMake itself. */
function compile(definitions, env) {
  const missing = ['cmake', 'g++', 'make'].filter((command) => !onPath(command));
  if (missing.length > 0) {
    console.error(
      `steptrain: compiling the addon needs ${missing.join(' and ')}: apt-get install cmake g++ make (g++ 12 and CMake 3.22 or newer)`,
    );
    process.exit(1);
  }
  const cmakeJs = optional('cmake-js/bin/cmake-js');
  if (cmakeJs) {
    run(
      process.execPath,
      [cmakeJs, 'build', '--prefer-make', ...definitions.map((each) => `--CD${each}`)],
      env,
    );
    return;
  }
  const paths = [
    'CMAKE_BUILD_TYPE=Release',
    `CMAKE_LIBRARY_OUTPUT_DIRECTORY=${join(root, 'build/Release')}`,
    `CMAKE_JS_INC=${require('node-api-headers').include_dir}`,
    `NODE_ADDON_API=${dirname(require.resolve('node-addon-api/package.json'))}`,
  ];
  run('cmake', ['-S', '.', '-B', 'build', ...[...definitions, ...paths].map((each) => `-D${each}`)], env);
  run('cmake', ['--build', 'build'], env);
}

function optional(module) {
  try {
    return require.resolve(module);
  } catch {
    return undefined;
  }
}

function buildTypeScript(name, project, folders, output) {
  step(
    name,
    sources([...folders, project, 'tsconfig.json', 'package-lock.json'], ['.ts']),
    {},
    output,
    () => {
      const known = join(root, 'build', `${name}.tsbuildinfo`);
      // tsc writes only what changed since `known`, and would not notice that its output is gone.
      if (!existsSync(join(root, output)) || flags.has('--force')) rmSync(known, { force: true });
      const incremental = ['--incremental', '--tsBuildInfoFile', known];
      run(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', project, ...incremental]);
    },
  );
}

/** In the order of the cascade. */
const STYLES = ['colours', 'elements', 'frame', 'head', 'tables', 'plots', 'texts', 'media'].map(
  (name) => `src/report/style/${name}.css`,
);

/** Script and style of the report's pages, each one file, since a page carries them inside itself. */
function buildPages() {
  const folder = 'src/report/browser';
  step(
    'pages',
    sources([folder, 'src/report/style', 'package-lock.json'], ['.ts', '.css']),
    {},
    'dist/report/browser.js',
    () => {
      const bundle = [
        join(folder, 'page.ts'),
        '--file',
        'dist/report/browser.js',
        '--format',
        'iife',
        '--minify',
      ];
      run(process.execPath, [
        join(dirname(require.resolve('rolldown/package.json')), 'bin/cli.mjs'),
        ...bundle,
        '--platform',
        'browser',
      ]);
      const style = [require.resolve('uplot/dist/uPlot.min.css'), ...STYLES.map((path) => join(root, path))];
      writeFileSync(
        join(root, 'dist/report/browser.css'),
        style.map((path) => readFileSync(path, 'utf8')).join('\n'),
      );
    },
  );
}

if (!flags.has('--no-addon')) buildAddon();
if (!flags.has('--no-typescript')) {
  buildTypeScript('typescript', 'tsconfig.build.json', ['src'], 'dist/index.js');
  buildPages();
}
if (flags.has('--bench')) {
  buildTypeScript('bench', 'tsconfig.bench.json', ['bench', 'examples', 'dist'], 'build/ts/bench/main.js');
}
