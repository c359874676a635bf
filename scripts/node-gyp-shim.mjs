#!/usr/bin/env node
// Stands in for node-gyp when prebuildify asks for a build: the addon is compiled by cmake-js (scripts/build.mjs), and a copy of it is
// left where prebuildify looks.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const arch = process.argv.find((argument) => argument.startsWith('--arch='))?.slice('--arch='.length);
const folder = arch === undefined || arch === process.arch ? 'build' : `build/${arch}`;
const root = fileURLToPath(new URL('..', import.meta.url));
if (!process.env.STEPTRAIN_AS_BUILT) {
  const args = [
    join(root, 'scripts/build.mjs'),
    '--no-typescript',
    '--all',
    `--arch=${arch ?? process.arch}`,
  ];
  const { status } = spawnSync(process.execPath, args, { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
mkdirSync('build/Release', { recursive: true });
copyFileSync(join(root, folder, 'Release/steptrain.node'), 'build/Release/steptrain.node');
