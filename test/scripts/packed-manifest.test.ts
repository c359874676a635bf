// The manifest that npm packs: without what npm would list as a script at every installation, and the clone's own afterwards.
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

test('package.json is packed without prepare, and is as it was once npm has packed, or was killed', () => {
  const clone = temporaryDirectory();
  mkdirSync(join(clone, 'scripts'));
  for (const file of ['package.json', 'scripts/packed-manifest.mjs'])
    copyFileSync(join(root, file), join(clone, file));
  const script = (...args: readonly string[]) =>
    expect(spawnSync(process.execPath, [join(clone, 'scripts/packed-manifest.mjs'), ...args]).status).toBe(0);
  const read = () => readFileSync(join(clone, 'package.json'), 'utf8');
  const before = read();
  const { prepare, ...scripts } = JSON.parse(before).scripts;
  expect(prepare).toBeDefined();
  // A pack that was killed left the first one.
  for (let i = 0; i < 2; i++) {
    script();
    expect(JSON.parse(read())).toEqual({ ...JSON.parse(before), scripts });
  }
  for (let i = 0; i < 2; i++) {
    script('--restore');
    expect(read()).toBe(before);
  }
  expect(existsSync(join(clone, 'build/package.json'))).toBe(false);
});
