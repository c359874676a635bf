import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { diagnosis, PREBUILT } from '../../src/native/diagnosis.js';
import { addonPaths, loadAddon, thisPlatform } from '../../src/native/loader.js';
import { packageVersion } from '../../src/native/version.js';
import { repetitions } from '../repetitions.js';

const BUILT = resolve('build/Release/steptrain.node');

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'steptrain-loader-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const place = (path: string, content: string | undefined) => {
  const file = join(root, path, 'steptrain.node');
  mkdirSync(join(root, path), { recursive: true });
  if (content === undefined) symlinkSync(BUILT, file);
  else writeFileSync(file, content);
};

/** As npm lays out the package of this platform, beside `root` in the same node_modules or inside it. */
const install = (version: string) => {
  const name = `@steptrain/linux-${process.arch}`;
  const folder = join(root, 'node_modules', name);
  mkdirSync(folder, { recursive: true });
  // What is loaded is not written to.
  if (!existsSync(join(folder, 'steptrain.node'))) copyFileSync(BUILT, join(folder, 'steptrain.node'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name, version }));
  return join(folder, 'steptrain.node');
};

describe('the loader', () => {
  it('takes the package of the platform where nothing else is, of the same version alone', () => {
    const path = install(packageVersion());
    expect(loadAddon(root).path).toBe(path);
    mkdirSync(join(root, 'node_modules/steptrain'));
    expect(loadAddon(join(root, 'node_modules/steptrain')).path).toBe(path);
    install('0.0.1');
    expect(() => loadAddon(root)).toThrow(
      /linux-\w+ is 0\.0\.1, and steptrain [\d.]+\n.*install @steptrain\/linux-\w+ of the version that steptrain has/,
    );
  });

  it('takes what was compiled here before what the package carries', () => {
    const [built, prebuilt] = addonPaths(root, thisPlatform());
    expect(built).toBe(join(root, 'build/Release/steptrain.node'));
    expect(prebuilt).toMatch(/prebuilds\/linux-\w+\/steptrain\.node$/);
  });

  it('passes over a file that does not load, and remembers why', () => {
    place('build/Release', 'not a library');
    place(`prebuilds/linux-${process.arch}`, undefined);
    const { path, failures } = loadAddon(root);
    expect(path).toBe(BUILT);
    expect(failures).toEqual([
      {
        path: join(root, 'build/Release/steptrain.node'),
        reason: expect.stringMatching(/file too short|invalid ELF/),
      },
    ]);
  });

  it('names every path and the commands where none loads', () => {
    expect(() => loadAddon(root)).toThrow(
      /build\/Release\/steptrain\.node: no such file\n.*prebuilds.*: no such file\n.*@steptrain.*: no such file\n.*npm run build/,
    );
    place(`prebuilds/linux-${process.arch}`, 'x'.repeat(100));
    expect(() => loadAddon(root)).toThrow(
      /the file is damaged: npm install steptrain --force, or compile it here: npx steptrain build/,
    );
  });
});

const LINUX = { platform: 'linux', arch: 'x64', runtime: 'Node 20.0.0', glibc: '2.31' };
const failed = (reason: string) => [{ path: '/p/steptrain.node', reason }];

describe('the diagnosis', () => {
  it.each([
    [
      "/lib/libc.so.6: version `GLIBC_2.34' not found (required by x)",
      /glibc 2\.31, with .*\n.*\n.*needs glibc 2\.34 \(Debian 12, .*wants 2\.34; use a newer system, or compile/,
    ],
    ["libstdc++.so.6: version `GLIBCXX_3.4.29' not found", /GLIBCXX_3\.4\.29 \(GCC 11\).*LD_LIBRARY_PATH/],
    [
      'libstdc++.so.6: cannot open shared object file: No such file or directory',
      /apt-get install libstdc\+\+6/,
    ],
    ['failed to map segment from shared object', /mounted noexec/],
    ['something else', /compile it here: npx steptrain build \(needs g\+\+ 12/],
  ])('of %s', (reason, expected) => {
    expect(diagnosis(failed(reason), LINUX)).toMatch(expected);
  });

  it('names what runs the program, and a C library that is known', () => {
    const [first] = diagnosis(failed('x'), { ...LINUX, runtime: 'Deno 2.9.6', glibc: 'unknown' }).split('\n');
    expect(first).toBe('the native addon of steptrain did not load on linux-x64 with Deno 2.9.6:');
  });

  it.each([
    [
      { ...LINUX, platform: 'darwin', arch: 'arm64', glibc: undefined },
      'steptrain runs on Linux; on darwin use it in a container, a virtual machine',
    ],
    [
      { ...LINUX, platform: 'win32', glibc: undefined },
      'steptrain runs on Linux; on win32 use it in a container, a virtual machine or WSL 2',
    ],
    [
      { ...LINUX, arch: 'riscv64' },
      'there are binaries for Linux on x64 and arm64 with glibc alone; compile it here: npx steptrain build (needs g++ 12 or newer, make and CMake 3.22 or newer)',
    ],
    [
      { ...LINUX, glibc: undefined },
      'there are binaries for Linux on x64 and arm64 with glibc alone; compile it here: npx steptrain build (needs g++ 12 or newer, make and CMake 3.22 or newer)',
    ],
  ])('of a platform without a binary is one sentence', (platform, sentence) => {
    expect(
      diagnosis([{ path: '/p/steptrain.node' }], platform)
        .split('\n')
        .at(-1),
    ).toBe(sentence);
  });
});

const check = (file: string) =>
  spawnSync(process.execPath, ['scripts/prebuild.mjs', '--check', file], { encoding: 'utf8' });

describe('the compiled addon', () => {
  // That of a newer system does, and serves that system alone: npm pack refuses it.
  it.skipIf(repetitions(0, 1) === 0)(
    'asks for no newer symbols than the oldest supported systems have (before a release)',
    () => expect(check(BUILT)).toMatchObject({ status: 0, stderr: '' }),
  );

  it('is what the messages say of the systems that it needs', () => {
    expect(PREBUILT).toEqual({ glibc: '2.34', glibcxx: '3.4.29' });
  });

  it('would be refused if it did', () => {
    const file = join(root, 'x.node');
    writeFileSync(file, 'ELF\0GLIBC_2.35\0GLIBC_2.4\0GLIBCXX_3.4.30\0GLIBCXX_3.4.9\0CXXABI_1.3\0');
    const { status, stderr } = check(file);
    expect(status).toBe(1);
    expect(stderr).toContain('asks for GLIBC_2.35, GLIBCXX_3.4.30, and the oldest systems have GLIBC_2.34');
  });
});
