// Builds an addon whose cuda:0 is the emulator (emulator.h) from the objects of the last `npm run build`, into
// build/emulated. To test with it:
//   node test/cuda/emulator/build.mjs && STEPTRAIN_ADDON=$PWD/build/emulated/build/Release/steptrain.node npx vitest run test/cuda
import { spawn } from 'node:child_process';
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
function translated(file) {
  if (!file.endsWith('.cu')) return file;
  const text = readFileSync(file, 'utf8').replace(
    /extern __shared__ (\w+) (\w+)\[\];/g,
    'static $1* const $2 = static_cast<$1*>(emulator::dynamic_shared());',
  );
  const copy = join(objects, `${nameOf(file)}.cc`);
  writeFileSync(copy, `#line 1 "${file}"\n${text}`);
  return copy;
}

mkdirSync(objects, { recursive: true });
mkdirSync(join(output, 'build/Release'), { recursive: true });

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
];
const includes = [here, root, addonApi, apiHeaders].map((folder) => `-I${folder}`);
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

const headers = newest([
  ...listed('cuda', ['.h', '.cuh']),
  ...listed('core', ['.h']),
  ...listed('binding', ['.h']),
  ...listed('test/cuda/emulator', ['.h', '.cuh', '.mjs']),
]);
const made = [];
const compilations = [];
for (const file of [
  ...listed('cuda', ['.cc', '.cu']),
  ...listed('binding', ['.cc']),
  ...listed('test/cuda/emulator', ['.cc']),
]) {
  const object = join(objects, `${nameOf(file)}.o`);
  made.push(object);
  if (existsSync(object) && statSync(object).mtimeMs > Math.max(headers, statSync(file).mtimeMs)) continue;
  const kernels = file.endsWith('.cu')
    ? ['-D__CUDACC__', '-include', 'cuda_runtime.h', '-Wno-unknown-pragmas']
    : [];
  const checks = file.includes('/binding/') ? [] : sanitize;
  const compile = [
    ...common,
    ...checks,
    ...includes,
    ...defines,
    ...kernels,
    '-c',
    translated(file),
    '-o',
    object,
  ];
  compilations.push(() => run('g++', compile));
}

await Promise.all(
  Array.from({ length: availableParallelism() }, async () => {
    for (let next = compilations.shift(); next; next = compilations.shift()) await next();
  }),
);

const link = join(root, 'build/CMakeFiles/steptrain.dir/link.txt');
if (!existsSync(link))
  throw new Error('run "npm run build" first: the objects of core/ and cpu/ are taken from it');
const rest = readFileSync(link, 'utf8')
  .split(/\s+/)
  .filter((word) => word.endsWith('.o') && !/cuda_kernels|\/binding[./]/.test(word))
  .map((object) => join(root, 'build', object));
const addon = join(output, 'build/Release/steptrain.node');
await run('g++', [
  '-shared',
  ...sanitize,
  '-Wl,-z,nodelete',
  '-Wl,--exclude-libs,ALL',
  '-o',
  addon,
  ...made,
  ...rest,
  '-lpthread',
]);
console.log(addon);

// The program that prints the kernels' layouts, for test/cuda/layouts.test.ts.
const layouts = join(root, 'test/cuda/layouts/print.cc');
const program = join(output, 'layouts');
if (!existsSync(program) || statSync(program).mtimeMs < Math.max(headers, statSync(layouts).mtimeMs)) {
  await run('g++', [
    ...common,
    ...sanitize,
    ...includes,
    ...defines,
    '-D__CUDACC__',
    '-include',
    'cuda_runtime.h',
    '-Wno-unknown-pragmas',
    layouts,
    ...made.filter((object) => !/\/binding_[^/]*$/.test(object)),
    ...rest,
    '-o',
    program,
    '-lpthread',
  ]);
}
