// Makes prebuilds/linux-x64/steptrain.node and its like for arm64, each in a package of its own, and checks what they ask of a system
// and for which GPUs they hold code.
//   node scripts/prebuild.mjs                 compile for every machine, then prebuildify
//   node scripts/prebuild.mjs --as-built      prebuildify what was compiled for this one, and for no other processor
//   node scripts/prebuild.mjs --check FILE    only check that file
//   node scripts/prebuild.mjs --probe         only check what the compiler of this system makes, before minutes of compiling
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gpuCode } from './build/cubins.mjs';
import { readStamp } from './build/fresh.mjs';
import { crossCompiler } from './build/machine.mjs';
import { folderOf, writePlatformPackage } from './build/platforms.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const require = createRequire(import.meta.url);

/** The newest symbol versions that a binary may ask for; src/native/diagnosis.ts names them to users. */
const NEWEST = { GLIBC: '2.34', GLIBCXX: '3.4.29', CXXABI: '1.3.13' };

/** Symbol versions in `path` beyond NEWEST, such as `GLIBCXX_3.4.30`. */
function tooNew(path) {
  const names = readFileSync(path, 'latin1').matchAll(/\0(GLIBC|GLIBCXX|CXXABI)_([\d.]+)(?=\0)/g);
  const found = [...names].filter(([, library, version]) => compare(version, NEWEST[library]) > 0);
  return [...new Set(found.map(([, library, version]) => `${library}_${version}`))];
}

function compare(a, b) {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number));
  const at = left.findIndex((part, i) => part !== (right[i] ?? 0));
  if (at < 0) return left.length - right.length;
  return left[at] - (right[at] ?? 0);
}

function check(path) {
  const refused = tooNew(path);
  if (refused.length === 0) return;
  console.error(
    `steptrain: ${path} asks for ${refused.join(', ')}, and the oldest systems have ${Object.entries(NEWEST)
      .map((each) => each.join('_'))
      .join(', ')}`,
  );
  process.exit(1);
}

/** Uses what newer systems have in a new version: numbers from text (GLIBC_2.38), streams (GLIBCXX_3.4.32). */
const PROBE = `#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
int probe(const char* text) { std::thread([] {}).join(); return std::stoi(text) + std::atoi(text); }
`;

/** Ends with a sentence where what is compiled here would load on newer systems alone. */
function probe() {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-probe-'));
  try {
    writeFileSync(join(folder, 'probe.cc'), PROBE);
    const args = ['-std=c++20', '-O1', '-shared', '-fPIC', 'probe.cc', '-o', 'probe.so'];
    const { status } = spawnSync(process.env.CXX ?? 'g++', args, { cwd: folder, stdio: ['ignore', 2, 2] });
    // A build says what is missing.
    const found = status === 0 ? tooNew(join(folder, 'probe.so')) : [];
    if (found.length === 0) return;
    console.error(
      `steptrain: packages for every system cannot be made here, since this compiler asks for ${found.join(', ')}: ` +
        'call npm pack on Debian 12 or in a container of it (debian:12); for this machine alone npm run build suffices',
    );
    process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Capabilities such as `9.0` for which `path` holds machine code; ends where it lacks one that it was compiled for. */
function checkedGpus(path, arch) {
  const stamp = readStamp(root, arch === process.arch ? 'addon' : `addon-${arch}`);
  const wanted = (stamp?.architectures ?? []).map((each) => Number.parseInt(each, 10));
  const { cubins, ptx } = gpuCode(path);
  const missing = wanted.filter((each) => !cubins.includes(each));
  if (missing.length > 0 || (wanted.length > 0 && ptx.length === 0)) {
    const lacks = missing.map((each) => `sm_${each}`).join(', ') || 'PTX';
    console.error(`steptrain: ${path} was compiled for ${wanted.join(', ')} and lacks ${lacks}`);
    process.exit(1);
  }
  return cubins.map((each) => (each / 10).toFixed(1));
}

function prebuild(asBuilt, arch = process.arch, more = []) {
  const staging = join(root, 'build/prebuild');
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { recursive: true });
  // prebuildify moves and strips what it finds, so it works on a copy, which the shim makes in its folder.
  const args = [
    '--cwd',
    staging,
    '--out',
    root,
    '--name',
    'steptrain',
    '--napi',
    '--strip',
    '--arch',
    arch,
    ...more,
  ];
  args.push('--target', process.versions.node, '--node-gyp', join(root, 'scripts/node-gyp-shim.mjs'));
  const { status } = spawnSync(process.execPath, [require.resolve('prebuildify/bin.js'), ...args], {
    stdio: ['ignore', 2, 2],
    env: { ...process.env, ...(asBuilt ? { STEPTRAIN_AS_BUILT: '1' } : {}) },
  });
  if (status !== 0) process.exit(1);
  const made = join(folderOf(root, arch), 'steptrain.node');
  check(made);
  const found = checkedGpus(made, arch);
  const gpus =
    found.length > 0 ? `with CUDA for compute capability ${found.join(', ')}` : 'for the CPU alone';
  writePlatformPackage(root, arch, gpus);
  console.error(`steptrain: ${made}, ${(statSync(made).size / 1e6).toFixed(1)} MB, ${gpus}`);
}

/** Says so where there is no compiler for it. */
function prebuildCross(arch) {
  let strip;
  try {
    ({ strip } = crossCompiler(arch));
  } catch (error) {
    console.error(`steptrain: nothing for ${arch}: ${error.message}`);
    return;
  }
  prebuild(false, arch, ['--strip-bin', strip]);
}

const [option, file] = process.argv.slice(2);
if (option === '--check') check(file);
else if (option === '--probe') probe();
else {
  prebuild(option === '--as-built');
  if (option !== '--as-built' && process.arch === 'x64') prebuildCross('arm64');
}
