#!/usr/bin/env node
// The command. In a clone that is not set up it says so: npm shows nothing of its own failure where it starts this.
import { existsSync } from 'node:fs';
import { oldNode } from '../scripts/build/preflight.mjs';

const there = (path) => existsSync(new URL(`../${path}`, import.meta.url));

/** What to do first; undefined where the command can start. */
function obstacle() {
  const old = oldNode();
  if (old) return old;
  if (there('tsconfig.build.json') && !there('node_modules')) return 'this clone is not set up: npm ci';
  if (!there('dist/cli/main.js')) return 'this clone is not built: npm run build';
  return undefined;
}

const first = obstacle();
if (first === undefined) await import('../dist/cli/main.js');
else {
  console.error(`steptrain: ${first}`);
  process.exitCode = 1;
}
