// Builds an addon whose cuda:0 is the emulator (emulator.h) from the objects of the last `npm run build`, into
// build/emulated, by ccache where there is one. To test with it:
//   node test/cuda/emulator/build.mjs && STEPTRAIN_ADDON=$PWD/build/emulated/build/Release/steptrain.node npx vitest run test/cuda
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../../..');
const require = createRequire(import.meta.url);
const output = join(root, 'build/emulated');
const objects = join(output, 'objects');

const hasCcache = spawnSync('ccache', ['--version']).status === 0;

async function run(command, args) {
  const [status] = await once(spawn(command, args, { cwd: root, stdio: 'inherit' }), 'close');
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed`);
}

function listed(folder, extensions) {
  return readdirSync(join(root, folder), { recursive: true })
    .map((name) => join(root, folder, name))
    .filter((name) => extensions.some((extension) => name.endsWith(extension)));
}

const newest = (files) => Math.max(...files.map((file) => statSync(file).mtimeMs));

/** Unique, since several folders have files of the same name. */
const nameOf = (file) => `${basename(dirname(file))}_${basename(file)}`;

/** A kernel file as C++: dynamic shared memory is a call. */
function translated(file, to) {
  if (!file.endsWith('.cu')) return file;
  const text = readFileSync(file, 'utf8').replace(
    /extern __shared__ (\w+) (\w+)\[\];/g,
    'static thread_local $1* const $2 = static_cast<$1*>(emulator::dynamic_shared());',
  );
  const copy = join(to, `${nameOf(file)}.cc`);
  writeFileSync(copy, `#line 1 "${file}"\n${text}`);
  return copy;
}

const apiHeaders = require('node-api-headers').include_dir;
const addonApi = require('node-addon-api').include_dir;
const common = [
  '-std=c++20',
  '-O2',
  '-g1',
  '-fPIC',
  '-fvisibility=hidden',
  '-ffp-contract=off',
  '-Wall',
  '-Wextra',
  '-Wno-psabi',
  // The kernels fuse by std::fma, a call where the compiler may not use the processor's.
  ...(existsSync('/proc/cpuinfo') && / fma /.test(readFileSync('/proc/cpuinfo', 'utf8')) ? ['-mfma'] : []),
];
const includes = [addonApi, apiHeaders].map((folder) => `-I${folder}`);
const defines = [
  '-DSTEPTRAIN_CUDA',
  '-DSTEPTRAIN_SM90',
  '-DNAPI_VERSION=8',
  '-DNAPI_CPP_EXCEPTIONS',
  '-DBUILDING_NODE_EXTENSION',
  '-DSTEPTRAIN_LONG_SEQUENCE=100',
];
// Finds accesses that fault on a GPU but not on this processor.
const sanitize = ['-fsanitize=alignment,bounds,shift,null', '-fno-sanitize-recover=all'];

// Calls memory.cc before every write of a kernel; nothing else of that sanitizer is used.
const noted = [
  '-fsanitize=kernel-address',
  ...['asan-instrumentation-with-call-threshold=0', 'asan-stack=0', 'asan-globals=0'].map(
    (set) => `--param=${set}`,
  ),
  ...['asan-instrument-reads=0', 'asan-instrument-allocas=0'].map((set) => `--param=${set}`),
];
const launcher = ['-D__CUDACC__', '-include', 'cuda_runtime.h', '-Wno-unknown-pragmas'];

/** Compiles a file of `from`, a copy of this tree or of a part of it, to an object in `to`. */
export async function compile(file, to, from = root) {
  const object = join(to, `${nameOf(file)}.o`);
  const args = [
    ...common,
    ...(file.includes('/binding/') ? [] : sanitize),
    ...(file.endsWith('.cu') ? [...launcher, ...noted] : []),
    `-I${here}`,
    ...[...new Set([from, root])].map((folder) => `-I${folder}`),
    ...includes,
    ...defines,
    '-c',
    translated(file, to),
    '-o',
    object,
  ];
  await (hasCcache ? run('ccache', ['g++', ...args]) : run('g++', args));
  return object;
}

const files = () => [
  ...listed('cuda', ['.cc', '.cu']),
  ...listed('binding', ['.cc']),
  ...listed('test/cuda/emulator', ['.cc']),
];

/** The objects of core/ and cpu/. */
function rest() {
  const link = join(root, 'build/CMakeFiles/steptrain.dir/link.txt');
  if (!existsSync(link))
    throw new Error('run "npm run build" first: the objects of core/ and cpu/ are taken from it');
  return readFileSync(link, 'utf8')
    .split(/\s+/)
    .filter((word) => word.endsWith('.o') && !/cuda_kernels|\/binding[./]/.test(word))
    .map((object) => join(root, 'build', object));
}

/** Links the addon, with other objects in place of those of the same name. */
export async function link(addon, others = []) {
  const names = new Set(others.map((object) => basename(object)));
  const made = files().map((file) => `${nameOf(file)}.o`);
  const own = made.filter((name) => !names.has(name)).map((name) => join(objects, name));
  await run('g++', [
    '-shared',
    ...sanitize,
    '-Wl,-z,nodelete',
    '-Wl,--exclude-libs,ALL',
    '-o',
    addon,
    ...others,
    ...own,
    ...rest(),
    '-lpthread',
  ]);
}

async function build() {
  mkdirSync(objects, { recursive: true });
  mkdirSync(join(output, 'build/Release'), { recursive: true });
  const headers = newest([
    ...listed('cuda', ['.h', '.cuh']),
    ...listed('core', ['.h']),
    ...listed('binding', ['.h']),
    ...listed('test/cuda/emulator', ['.h', '.cuh', '.mjs']),
  ]);
  const stale = files().filter((file) => {
    const object = join(objects, `${nameOf(file)}.o`);
    return !existsSync(object) || statSync(object).mtimeMs <= Math.max(headers, statSync(file).mtimeMs);
  });
  await Promise.all(
    Array.from({ length: Number(process.env.STEPTRAIN_BUILD_JOBS) || availableParallelism() }, async () => {
      for (let next = stale.shift(); next; next = stale.shift()) await compile(next, objects);
    }),
  );
  const addon = join(output, 'build/Release/steptrain.node');
  await link(addon);
  console.log(addon);

  // The program that prints the kernels' layouts, for test/cuda/layouts.test.ts.
  const layouts = join(root, 'test/cuda/layouts/print.cc');
  const program = join(output, 'layouts');
  if (existsSync(program) && statSync(program).mtimeMs >= Math.max(headers, statSync(layouts).mtimeMs))
    return;
  await run('g++', [
    ...common,
    ...sanitize,
    `-I${here}`,
    `-I${root}`,
    ...includes,
    ...defines,
    ...launcher,
    layouts,
    ...files()
      .filter((file) => !file.includes('/binding/'))
      .map((file) => join(objects, `${nameOf(file)}.o`)),
    ...rest(),
    '-o',
    program,
    '-lpthread',
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await build();
