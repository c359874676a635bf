// The table of error codes has every code that a program may meet, and no other.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const FOLDERS = ['src', 'core', 'binding', 'cpu', 'cuda', 'carriers'];

it('docs/reference/errors.md lists the codes of the sources', () => {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
  ).filter((name) => /\.(ts|cc|cu|h|cuh)$/.test(name));
  const used = files.flatMap((name) =>
    [...readFileSync(name, 'utf8').matchAll(/['"](E_[A-Z_]+)['"]/g)].map(([, code]) => code as string),
  );
  const page = readFileSync('docs/reference/errors.md', 'utf8');
  const listed = page
    .split('\n')
    .filter((line) => line.startsWith('| `E_'))
    .flatMap((line) => (line.split('|')[1] as string).match(/E_[A-Z_]+/g) ?? []);
  expect(listed.length).toBeGreaterThan(20);
  expect([...listed].sort()).toEqual([...new Set(used)].sort());
});
