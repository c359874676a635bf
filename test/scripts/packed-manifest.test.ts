// The manifest that npm packs: without what npm would list as a script at every installation, with the packages of the addon, and the
// clone's own afterwards.
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

test('package.json is packed without prepare and addons, and is as it was once npm has packed, or was killed', () => {
  const clone = temporaryDirectory();
  mkdirSync(join(clone, 'scripts/build'), { recursive: true });
  for (const file of ['package.json', 'scripts/packed-manifest.mjs', 'scripts/build/platforms.mjs'])
    copyFileSync(join(root, file), join(clone, file));
  const script = (...args: readonly string[]) =>
    expect(spawnSync(process.execPath, [join(clone, 'scripts/packed-manifest.mjs'), ...args]).status).toBe(0);
  const read = () => readFileSync(join(clone, 'package.json'), 'utf8');
  const before = read();
  const { version, files } = JSON.parse(before);
  const { prepare, ...scripts } = JSON.parse(before).scripts;
  expect(prepare).toBeDefined();
  // A pack that was killed left the first one.
  for (let i = 0; i < 2; i++) {
    script();
    expect(JSON.parse(read())).toEqual({
      ...JSON.parse(before),
      scripts,
      files: files.filter((name: string) => name !== 'prebuilds'),
      optionalDependencies: { '@steptrain/linux-x64': version, '@steptrain/linux-arm64': version },
    });
  }
  for (let i = 0; i < 2; i++) {
    script('--restore');
    expect(read()).toBe(before);
  }
  expect(existsSync(join(clone, 'build/package.json'))).toBe(false);
});
