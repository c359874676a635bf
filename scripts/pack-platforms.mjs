// After `npm pack` in a clone: packs the addon of each platform beside it, by the same npm, into the same folder.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const prebuilds = join(fileURLToPath(new URL('..', import.meta.url)), 'prebuilds');
// `npm publish` of one package is not for others.
if (process.env.npm_command === 'pack' && existsSync(prebuilds))
  for (const name of readdirSync(prebuilds)) {
    const { status } = spawnSync('npm', ['pack', join(prebuilds, name)], { stdio: ['ignore', 2, 2] });
    if (status !== 0) process.exit(1);
  }
