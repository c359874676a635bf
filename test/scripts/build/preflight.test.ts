// What is said where something is missing that a build or the command needs.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

const script = '../../../scripts/build/preflight.mjs';
const { installLine, oldNode, osRelease } = await import(script);

let folder: string;
let bin: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-preflight-'));
  bin = join(folder, 'path');
  mkdirSync(bin);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A clone in which nothing was done, with the folders that are named. */
function clone(name: string, ...folders: readonly string[]): string {
  const root = join(folder, name);
  for (const each of ['bin', 'scripts/build', 'scripts/build.mjs', 'tsconfig.build.json', 'package.json']) {
    mkdirSync(dirname(join(root, each)), { recursive: true });
    cpSync(each, join(root, each), { recursive: true });
  }
  for (const each of ['core', ...folders]) mkdirSync(join(root, each), { recursive: true });
  cpSync('core/ops.cc', join(root, 'core/ops.cc'));
  return root;
}

/** Ends with code 1 and that on standard error, with no tool on the PATH. */
function said(root: string, file: string, env: Readonly<Record<string, string>> = {}): string {
  const { PATH: _, CXX: __, ...rest } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, file)], {
    encoding: 'utf8',
    env: { ...rest, PATH: bin, STEPTRAIN_CUDA: '0', ...env },
  });
  expect([status, stdout]).toEqual([1, '']);
  return stderr;
}

it('a clone without its packages says so, whether it is built or used', () => {
  const root = clone('bare');
  expect(said(root, 'bin/steptrain.mjs')).toBe('steptrain: this clone is not set up: npm ci\n');
  expect(said(root, 'scripts/build.mjs')).toBe(
    'steptrain: the packages that this needs are not installed: npm ci\n',
  );
});

it('a clone that is not built says so', () => {
  expect(said(clone('unbuilt', 'node_modules'), 'bin/steptrain.mjs')).toBe(
    'steptrain: this clone is not built: npm run build\n',
  );
});

it('the command can be run in a clone, whatever was built or deleted: it is no file of dist', () => {
  const { bin: commands } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    bin: { steptrain: string };
  };
  expect(commands.steptrain).not.toContain('dist');
  expect(statSync(commands.steptrain).mode & 0o111).toBe(0o111);
});

it('a build names all that is missing, before it compiles anything', () => {
  const root = clone('toolless', 'node_modules', 'src/runtime');
  expect(said(root, 'scripts/build.mjs')).toMatch(
    /^steptrain: compiling the addon needs g\+\+ and make and cmake, which this machine lacks: .* npm run build; without a compiler, install the packages that npm pack makes on another machine \(docs\/getting-started\/install\.md\)\n$/,
  );
  // CMake takes the compiler that CXX names.
  expect(said(root, 'scripts/build.mjs', { CXX: 'clang++' })).toContain('needs make and cmake, which');
});

it('a build refuses compilers that are too old', () => {
  const root = clone('old', 'node_modules', 'src/runtime');
  const tool = (name: string, version: string) =>
    writeFileSync(join(bin, name), `#!/bin/sh\necho "${version}"\n`, { mode: 0o755 });
  symlinkSync(resolve('/bin/true'), join(bin, 'make'));
  tool('cmake', 'cmake version 3.18.4');
  tool('g++', '12.2.0');
  try {
    expect(said(root, 'scripts/build.mjs')).toMatch(
      /needs cmake 3\.22 or newer, and this machine's is 3\.18\.4: put a newer one first on the PATH, then npm run build; /,
    );
    tool('cmake', 'cmake version 3.22.1');
    tool('g++', '10.2.1');
    expect(said(root, 'scripts/build.mjs')).toMatch(
      /needs g\+\+ \d+ or newer, and this machine's is 10\.2\.1: install a newer one and name it: CXX=g\+\+-12 npm run build; /,
    );
  } finally {
    for (const name of ['make', 'cmake', 'g++']) rmSync(join(bin, name));
  }
});

it.each([
  [{ ID: 'debian' }, true, 'apt-get update && apt-get install -y g++ cmake'],
  [
    { ID: 'linuxmint', ID_LIKE: 'ubuntu debian' },
    false,
    'sudo apt-get update && sudo apt-get install -y g++ cmake',
  ],
  [{ ID: 'rocky', ID_LIKE: 'rhel centos fedora' }, true, 'dnf install -y gcc-c++ cmake'],
  [{ ID: 'fedora' }, false, 'sudo dnf install -y gcc-c++ cmake'],
  [{ ID: 'alpine' }, true, undefined],
  [{}, true, undefined],
])('%o has its own line to install them', (release, isRoot, line) => {
  const tools = [
    { apt: 'g++', dnf: 'gcc-c++' },
    { apt: 'cmake', dnf: 'cmake' },
  ];
  expect(installLine(tools, release, isRoot)).toBe(line);
});

it('reads the file that names the system', () => {
  const path = join(folder, 'os-release');
  writeFileSync(path, 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\nID_LIKE=""\n');
  expect(osRelease(path)).toMatchObject({ ID: 'debian', VERSION_ID: '13', ID_LIKE: '' });
  expect(osRelease(join(folder, 'none'))).toEqual({});
});

it.each([
  ['18.20.4', true],
  ['20.18.3', true],
  ['20.19.0', false],
  ['22.0.0', false],
])('Node %s is refused: %s', (version, isOld) => {
  expect(oldNode(version) !== undefined).toBe(isOld);
  if (isOld) expect(oldNode(version)).toContain(`Node is ${version}, and steptrain needs 20.19 or newer`);
});
