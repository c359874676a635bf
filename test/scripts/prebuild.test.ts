// What npm pack says of a compiler before it compiles for minutes.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-prebuild-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** With a compiler whose library asks for those versions of symbols. */
function probe(...symbols: readonly string[]) {
  const compiler = join(folder, 'compiler');
  writeFileSync(compiler, `#!/bin/sh\nprintf '\\0${symbols.join('\\0')}\\0' > probe.so\n`, { mode: 0o755 });
  const { status, stderr } = spawnSync(process.execPath, ['scripts/prebuild.mjs', '--probe'], {
    encoding: 'utf8',
    env: { ...process.env, CXX: compiler },
  });
  return { status, stderr };
}

it('refuses a compiler whose programs only newer systems load', () => {
  expect(probe('GLIBC_2.34', 'GLIBC_2.38', 'GLIBCXX_3.4.32')).toEqual({
    status: 1,
    stderr:
      'steptrain: packages for every system cannot be made here, since this compiler asks for GLIBC_2.38, GLIBCXX_3.4.32: ' +
      'call npm pack on Debian 12 or in a container of it (debian:12); for this machine alone npm run build suffices\n',
  });
});

it('says nothing of one whose programs load everywhere', () => {
  expect(probe('GLIBC_2.34', 'GLIBCXX_3.4.29')).toEqual({ status: 0, stderr: '' });
});
