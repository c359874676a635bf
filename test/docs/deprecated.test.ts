// No page tells a reader to type an option that the help calls deprecated.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { pages } from './pages.js';

/** By command, the options that its help calls deprecated. */
const deprecated = new Map(
  readFileSync('docs/reference/commands.md', 'utf8')
    .split(/^## steptrain /m)
    .slice(1)
    .map((part) => [
      part.slice(0, part.indexOf('\n')),
      [...part.matchAll(/^ +(--[a-z-]+) +Deprecated:/gm)].map(([, option]) => option as string),
    ]),
);
const old = new Set([...deprecated.values()].flat());

/** What is deprecated in a line with a command of steptrain, or in code within a sentence. */
function findings(line: string): string[] {
  const [, words = ''] = /\bsteptrain ((?:[a-z0-9-]+ ?)+)/.exec(line) ?? [];
  const command = [...deprecated.keys()].filter((name) => `${words} `.startsWith(`${name} `)).at(-1) ?? '';
  const typed = (deprecated.get(command) ?? []).filter((option) => new RegExp(` ${option}[ =]`).test(line));
  const named = [...line.matchAll(/`(--[a-z-]+)/g)].flatMap(([, option]) =>
    old.has(option as string) ? [option as string] : [],
  );
  return [...typed, ...named];
}

it('finds them', () => {
  expect([...old].sort()).toEqual(['--reward-run', '--run']);
  expect(findings('    npx steptrain eval solve a.jsonl --run runs/b -n 8')).toEqual(['--run']);
  expect(findings('the one that `--run` trained')).toEqual(['--run']);
  // There it is the name of today.
  expect(findings('    npx steptrain eval s3c a.jsonl --run runs/b')).toEqual([]);
  expect(findings('    npx steptrain run --resume runs/b')).toEqual([]);
});

it.each(pages())('%s has none', (_, text) => {
  const lines = text.replaceAll(/\\\n */g, '').split('\n');
  expect(lines.filter((line) => findings(line).length > 0)).toEqual([]);
});
