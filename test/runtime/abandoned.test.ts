// Tensors that nobody disposes, in a process whose garbage collector can be called.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const compiled = existsSync(new URL('../../dist/entries/index.js', import.meta.url));
if (!compiled) console.warn('skipped: dist/ is absent; run "npm run build"');

test.skipIf(!compiled)('forgotten tensors are freed, and each place that made some is named once', () => {
  const file = fileURLToPath(new URL('abandoned-tensors.mjs', import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', file], { encoding: 'utf8' });
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toEqual({ forgotten: 4 * 4096, left: 0, x: 0 });
  const warnings = stderr.split('\n').filter((line) => line.includes('STEPTRAIN_ABANDONED_TENSOR'));
  expect(warnings.map((line) => line.replace(/^.*Warning: /, '').replace(/;.*$/, '')).sort()).toEqual([
    '3 tensors (the first f32 [1024]) were never disposed, made by device.empty, zeros or tensor outside of any scope',
    'a tensor (f32 [1024]) was never disposed, made by copy in scope forgetful',
  ]);
});
