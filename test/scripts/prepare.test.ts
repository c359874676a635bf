// What `prepare` does where the addon cannot be compiled: an error in a clone, none where npm installs a git dependency.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'steptrain-prepare-'));
  mkdirSync(join(root, 'scripts'));
  mkdirSync(join(root, 'build/Release'), { recursive: true });
  writeFileSync(join(root, 'build/Release/steptrain.node'), '');
  copyFileSync('scripts/prepare.mjs', join(root, 'scripts/prepare.mjs'));
  const log = "import { appendFileSync } from 'node:fs'; const args = process.argv.slice(2).join(' ');";
  // Compiles TypeScript, and the addon only where CAN_COMPILE says so.
  writeFileSync(
    join(root, 'scripts/build.mjs'),
    `${log} appendFileSync('log', 'build ' + args + '\\n'); process.exit(args === '--no-addon' || process.env.CAN_COMPILE ? 0 : 1);`,
  );
  writeFileSync(
    join(root, 'scripts/prebuild.mjs'),
    `${log} appendFileSync('log', 'prebuild ' + args + '\\n');`,
  );
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

function prepare(env: Readonly<Record<string, string>>) {
  writeFileSync(join(root, 'log'), '');
  const { _PACOTE_NO_PREPARE_: _, npm_package_resolved: __, npm_command: ___, ...clean } = process.env;
  const { status } = spawnSync(process.execPath, ['scripts/prepare.mjs'], {
    cwd: root,
    env: { ...clean, ...env },
  });
  return {
    status,
    log: readFileSync(join(root, 'log'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.trim()),
  };
}

const GIT = [
  { _PACOTE_NO_PREPARE_: 'git+file:///x' },
  { npm_package_resolved: '/tmp/clone', npm_command: 'install' },
];

it.each([
  {},
  { npm_package_resolved: '/here', npm_command: 'pack' },
  { npm_package_resolved: '/here', npm_command: 'publish' },
])('in a clone, %o: builds all, and its failure is one', (env) => {
  expect(prepare(env)).toEqual({ status: 1, log: ['build'] });
  expect(prepare({ ...env, CAN_COMPILE: '1' })).toEqual({ status: 0, log: ['build'] });
});

it('for npx: does nothing, since npm hides what it says and every other npx waits meanwhile', () => {
  for (const env of [{ npm_command: 'exec' }, { npm_command: 'exec', npm_package_resolved: '/here' }])
    expect(prepare(env)).toEqual({ status: 0, log: [''] });
});

it.each(GIT)('in a git dependency, %o: fails nothing without a compiler', (env) => {
  expect(prepare(env)).toEqual({ status: 0, log: ['build --no-addon', 'build --no-typescript'] });
});

it.each(GIT)('in a git dependency, %o: with one, the addon is where the package carries it', (env) => {
  expect(prepare({ ...env, CAN_COMPILE: '1' })).toEqual({
    status: 0,
    log: ['build --no-addon', 'build --no-typescript', 'prebuild --as-built'],
  });
});
