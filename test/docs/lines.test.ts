// What people write in Markdown fits the screen and leads somewhere. Generated pages are wide by nature, tables too.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';

const COLUMNS = 110;
const GENERATED = /^docs\/reference\/(commands|configuration)\.md$/;

const written = [
  ...readdirSync('.').filter((name) => name.endsWith('.md')),
  ...['docs', 'research'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => join(folder, name)),
  ),
];

/** The packed pages that lead out of the package, and say so. */
const OUT_OF_PACKAGE = /^(README|docs\/evidence\/README)\.md$/;

/** What `npm pack` takes; a link of a packed page that leads elsewhere is dead in an installed package. */
const { files } = JSON.parse(readFileSync('package.json', 'utf8')) as { readonly files: readonly string[] };
const isPacked = (path: string) =>
  /^(?:README\.md|LICENSE|package\.json)$/.test(path) ||
  files.some((entry) => path === entry || path.startsWith(`${entry}/`));

/** As GitHub makes anchors of headings. */
const anchors = (text: string) =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-'),
  );

describe.each(written)('%s', (page) => {
  const text = readFileSync(page, 'utf8');

  it.skipIf(GENERATED.test(page))(`has lines of at most ${COLUMNS} columns`, () => {
    const long = text.split('\n').filter((line) => [...line].length > COLUMNS && !line.startsWith('|'));
    expect(long.filter((line) => !line.startsWith('{"'))).toEqual([]); // a row of a file is one line
  });

  it('links to what is there, and in the package', () => {
    const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link as string);
    const dead = links.filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [path = '', anchor] = link.split('#');
      const target = path === '' ? page : normalize(join(dirname(page), path));
      if (!existsSync(target) || (isPacked(page) && !isPacked(target) && !OUT_OF_PACKAGE.test(page)))
        return true;
      return anchor !== undefined && !anchors(readFileSync(target, 'utf8')).includes(anchor);
    });
    expect(dead).toEqual([]);
  });
});

it('README has at most 120 lines', () => {
  expect(readFileSync('README.md', 'utf8').split('\n').length).toBeLessThanOrEqual(121);
});

it('each version of CHANGELOG.md has at most 80 lines', () => {
  const versions = readFileSync('CHANGELOG.md', 'utf8')
    .split(/^(?=## )/m)
    .slice(1);
  expect(versions.map((version) => version.trim().split('\n').length).filter((n) => n > 80)).toEqual([]);
});
