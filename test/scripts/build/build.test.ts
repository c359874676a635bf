// scripts/build.mjs with an addon of one function: what it compiles again, and what it does not.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

const SOURCE = (value: number) => `
#include <node_api.h>
#include "core/number.h"
static napi_value init(napi_env env, napi_value exports) {
  napi_value number;
  napi_create_int32(env, NUMBER + ${value}, &number);
  napi_set_named_property(env, exports, "number", number);
  return exports;
}
NAPI_MODULE(steptrain, init)`;

const CMAKE = `
cmake_minimum_required(VERSION 3.22)
project(tiny LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_library(steptrain SHARED core/addon.cc core/other.cc)
set_target_properties(steptrain PROPERTIES PREFIX "" SUFFIX ".node")
target_include_directories(steptrain PRIVATE \${CMAKE_SOURCE_DIR} \${CMAKE_JS_INC})`;

const hasCompiler = ['cmake', 'make', 'g++'].every(
  (command) => spawnSync(command, ['--version']).status === 0,
);

let folder: string;
let root: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-build-'));
  root = join(folder, 'checkout');
  mkdirSync(join(root, 'core'), { recursive: true });
  cpSync('scripts/build.mjs', join(root, 'scripts/build.mjs'));
  cpSync('scripts/build', join(root, 'scripts/build'), { recursive: true });
  symlinkSync(resolve('node_modules'), join(root, 'node_modules'));
  // As the package says it: without it cmake-js downloads Node's headers.
  const { binary } = JSON.parse(readFileSync('package.json', 'utf8')) as { binary: object };
  writeFileSync(join(root, 'package.json'), JSON.stringify({ name: 'tiny', binary }));
  writeFileSync(join(root, 'CMakeLists.txt'), CMAKE);
  writeFileSync(join(root, 'core/addon.cc'), SOURCE(1));
  writeFileSync(join(root, 'core/number.h'), '#define NUMBER 40\n');
  writeFileSync(join(root, 'core/other.cc'), 'int other() { return 0; }\n');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function build(...flags: string[]) {
  const { status, stderr } = spawnSync(
    process.execPath,
    [join(root, 'scripts/build.mjs'), '--no-typescript', ...flags],
    { encoding: 'utf8', env: { ...process.env, STEPTRAIN_CUDA: '0', CCACHE_DISABLE: '1' } },
  );
  const number = () =>
    Number(
      spawnSync(process.execPath, ['-p', `require('${join(root, 'build/Release/steptrain.node')}').number`], {
        encoding: 'utf8',
      }).stdout,
    );
  return { status, stderr, number };
}

it.skipIf(!hasCompiler)('the addon is compiled where its sources are others, and only there', () => {
  const first = build();
  expect(first.stderr).toMatch(
    /^steptrain: compiling the addon for portable.*: 2 units, about \d+ s on \d processors?\nsteptrain: compiling steptrain\/core\/\w+\.cc, 1 of 2, about \d+ s left\n$/,
  );
  expect(first.number()).toBe(41);
  expect(build()).toMatchObject({ status: 0, stderr: '' });

  // Moved, and with other times, as a copy or an archive may have them.
  renameSync(root, join(folder, 'moved'));
  root = join(folder, 'moved');
  utimesSync(join(root, 'core/addon.cc'), new Date(), new Date());
  expect(build()).toMatchObject({ status: 0, stderr: '' });

  // The cache of CMake names the folder of before.
  writeFileSync(join(root, 'core/number.h'), '#define NUMBER 50\n');
  expect(build()).toMatchObject({ status: 0, stderr: expect.stringContaining('compiling the addon') });
  expect(build().number()).toBe(51);

  // Of one header, one unit.
  writeFileSync(join(root, 'core/number.h'), '#define NUMBER 60\n');
  const second = build();
  expect(second.stderr).toMatch(/: 1 units?, /);
  expect(second.number()).toBe(61);

  // An addon that does not load here is compiled again.
  writeFileSync(join(root, 'build/Release/steptrain.node'), 'of another machine');
  expect(build().number()).toBe(61);

  writeFileSync(join(root, 'core/addon.cc'), 'nonsense');
  const failed = build();
  expect(failed).toMatchObject({ status: 1, stderr: expect.stringContaining('nonsense') });
  expect(failed.stderr).toContain('failed; the lines above say why');
  expect(readFileSync(join(root, 'core/number.h'), 'utf8')).toContain('60');
});
