// What counts as built: contents, not times or places.
import { cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

const { contentHash, readStamp, removeStamp, sources, writeStamp } = await import(
  new URL('../../../scripts/build/fresh.mjs', import.meta.url).href
);

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'steptrain-fresh-'));
  mkdirSync(join(root, 'cpu/gemm'), { recursive: true });
  for (const [path, text] of [
    ['cpu/rope.cc', 'a'],
    ['cpu/gemm/tile.h', 'b'],
    ['cpu/notes.md', 'c'],
    ['CMakeLists.txt', 'd'],
  ] as const)
    writeFileSync(join(root, path), text);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const hashOf = (folder: string) =>
  contentHash(folder, sources(folder, ['cpu', 'CMakeLists.txt', 'absent'], ['.cc', '.h']));

it('a checkout that was copied, or whose files have other times, has the same hash', () => {
  const before = hashOf(root);
  const copy = `${root}-copy`;
  cpSync(root, copy, { recursive: true });
  try {
    expect(hashOf(copy)).toBe(before);
  } finally {
    rmSync(copy, { recursive: true });
  }
  utimesSync(join(root, 'cpu/rope.cc'), 1, 1);
  writeFileSync(join(root, 'cpu/notes.md'), 'other');
  expect(hashOf(root)).toBe(before);
});

it.each([
  ['changed', () => writeFileSync(join(root, 'cpu/gemm/tile.h'), 'B')],
  ['renamed', () => renameSync(join(root, 'cpu/rope.cc'), join(root, 'cpu/ropes.cc'))],
  ['added', () => writeFileSync(join(root, 'cpu/mlp.cc'), '')],
  ['removed', () => rmSync(join(root, 'CMakeLists.txt'))],
])('a file that was %s gives another', (_, change) => {
  const before = hashOf(root);
  change();
  expect(hashOf(root)).not.toBe(before);
});

it('a stamp is read as it was written, and is none where it is damaged', () => {
  expect(readStamp(root, 'addon')).toBeUndefined();
  writeStamp(root, 'addon', { sources: 'x', isas: ['avx2'] });
  expect(readStamp(root, 'addon')).toEqual({ sources: 'x', isas: ['avx2'] });
  removeStamp(root, 'addon');
  expect(readStamp(root, 'addon')).toBeUndefined();
  writeFileSync(join(root, 'build/addon.stamp'), '4f2a'.repeat(16));
  expect(readStamp(root, 'addon')).toBeUndefined();
});
