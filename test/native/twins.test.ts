import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { addon } from '../../src/native/addon.js';

/** A file of kernels that replace others where the processor multiplies bf16 in pairs. */
const REPLACES = /^#if defined\(__AVX512BF16__\)\n\nnamespace/m;

/** The file, without its extension, in which each op of one side is defined and registered. */
function filesOfOps(side: 'cpu' | 'cuda'): Map<string, string> {
  const files = new Map<string, string>();
  const replaced = new Set<string>();
  for (const path of readdirSync(side, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(cc|cu)$/.test(path)) continue;
    const text = readFileSync(join(side, path), 'utf8');
    if (REPLACES.test(text)) {
      for (const [, op] of text.matchAll(/table\.set\("(\w+)"/g)) replaced.add(op as string);
      continue;
    }
    for (const [, op] of text.matchAll(/table\.set\("(\w+)"/g)) {
      expect(text, `${side}/${path} registers ${op}, so it must define it`).toMatch(
        new RegExp(`void ${op}\\(Stream&(?: stream)?, const Args& args\\) \\{`),
      );
      files.set(op as string, path.replace(/\.\w+$/, ''));
    }
  }
  expect([...replaced].filter((op) => !files.has(op))).toEqual([]);
  return files;
}

test('every op is in the file of the same name in cpu/ and cuda/', () => {
  const cpu = filesOfOps('cpu');
  expect([...cpu.keys()].sort()).toEqual(
    addon()
      .signatures()
      .map(({ name }) => name)
      .sort(),
  );
  expect(Object.fromEntries(filesOfOps('cuda'))).toEqual(Object.fromEntries(cpu));
});
