// "Where a new thing goes" in ARCHITECTURE.md and CONTRIBUTING.md name files, tables and functions that exist.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const architecture = readFileSync('ARCHITECTURE.md', 'utf8');
const [, places = ''] = /^## Where a new thing goes\n(.*?)^## /ms.exec(architecture) ?? [];
const steps = readFileSync('CONTRIBUTING.md', 'utf8')
  .split(/^(?=## )/m)
  .filter((part) => part.startsWith('## Adding'));

const FOLDERS = [
  'src',
  'test',
  'docs',
  'core',
  'cpu',
  'cuda',
  'carriers',
  'binding',
  'scripts',
  'recipes',
  'examples',
];
const files = FOLDERS.flatMap((folder) =>
  readdirSync(folder, { recursive: true }).map((file) => `${folder}/${String(file).replaceAll('\\', '/')}`),
);

/** The files of the repository that a path names: a file, a folder, or a pattern with `*`; its end may be enough. */
function matching(path: string): string[] {
  const pattern = path.replace(/[.]/g, '\\$&').replaceAll('*', '[^/]*');
  return files.filter((file) => new RegExp(`(^|/)${pattern}${path.endsWith('/') ? '' : '($|/)'}`).test(file));
}

/** `a/{b,c}.ts` as its two paths. */
function expanded(path: string): string[] {
  const [, before, choices, after] = /^(.*)\{(.*)\}(.*)$/.exec(path) ?? [];
  return choices === undefined ? [path] : choices.split(',').map((choice) => `${before}${choice}${after}`);
}

const PATH = new RegExp(`\`((?:${FOLDERS.join('|')})/[^\`\\s]*)\``, 'g');

it('every file and folder exists', () => {
  const text = [places, ...steps].join('\n');
  const paths = [...text.matchAll(PATH)].map(([, path]) => path as string);
  expect(paths.length).toBeGreaterThan(80);
  expect(paths.flatMap(expanded).filter((path) => !/NAME/.test(path) && matching(path).length === 0)).toEqual(
    [],
  );
});

it('every table and function stands in its file', () => {
  const named = [...places.matchAll(/`(\w+)`((?:(?:, | and )`\w+`)*) (?:of|in) `([^`\s]+\.(?:ts|cc))`/g)];
  expect(named.length).toBeGreaterThan(12);
  const absent = named.flatMap(([, first = '', more = '', path = '']) => {
    const [file = ''] = matching(path);
    const text = file === '' ? '' : readFileSync(file, 'utf8');
    const names = [first, ...[...more.matchAll(/`(\w+)`/g)].map(([, name]) => name as string)];
    return names
      .filter((name) => !new RegExp(`\\b${name}\\b`).test(text))
      .map((name) => `${name} in ${path}`);
  });
  expect(absent).toEqual([]);
});

it.each(['method', 'architecture', 'layout', 'reward', 'scorer', 'op', 'command', 'environment', 'carrier'])(
  'a new %s has a row for its files and one for its tests and page',
  (thing) => {
    const rows = places.split('\n').filter((line) => line.startsWith('| '));
    const beginning = new RegExp(`^\\| (?:any other |…)?${thing}\\b`);
    expect(rows.filter((row) => beginning.test(row)).length).toBeGreaterThan(1);
  },
);
