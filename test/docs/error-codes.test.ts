// The table of error codes has every code that a program may meet, and no other.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { invalid, type StepTrainError } from '../../src/native/errors.js';

const FOLDERS = ['src', 'core', 'binding', 'cpu', 'cuda', 'carriers'];

const codesOf = (text: string) =>
  [...text.matchAll(/['"](E_[A-Z_]+)['"]/g)].map(([, code]) => code as string);

/** Of the table in docs/reference/errors.md. */
function listedCodes(): readonly string[] {
  const page = readFileSync('docs/reference/errors.md', 'utf8');
  return page
    .split('\n')
    .filter((line) => line.startsWith('| `E_'))
    .flatMap((line) => (line.split('|')[1] as string).match(/E_[A-Z_]+/g) ?? []);
}

it('docs/reference/errors.md lists the codes of the sources', () => {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
  ).filter((name) => /\.(ts|cc|cu|h|cuh)$/.test(name));
  const used = files.flatMap((name) => codesOf(readFileSync(name, 'utf8')));
  const listed = listedCodes();
  expect(listed.length).toBeGreaterThan(20);
  expect([...listed].sort()).toEqual([...new Set(used)].sort());
});

it('the type of a code is their union, so that a switch can be exhaustive', () => {
  // @ts-expect-error: there is no such code
  const none: StepTrainError['code'] = 'E_NONE';
  const union = codesOf(readFileSync('src/native/errors.ts', 'utf8'));
  expect([...new Set(union)].sort()).toEqual([...listedCodes()].sort());
  expect(union).not.toContain(none);
});

it('what the page prints of an error says something of every error', () => {
  const printed = /console\.error\((.*)\)/.exec(readFileSync('docs/reference/errors.md', 'utf8'))?.[1] ?? '';
  const keys = [...printed.matchAll(/error\.(\w+)/g)].map(([, key]) => key as keyof StepTrainError);
  expect(keys).toContain('message');
  const error = invalid('a sentence');
  expect(keys.filter((key) => error[key] === '')).toEqual([]);
});
