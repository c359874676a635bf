// Commands that pages, recipes and sweeps tell are commands: each option and argument stands on the page of commands.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { pages } from './pages.js';

interface Command {
  /** Names of options, and whether each takes a value. */
  readonly options: ReadonlyMap<string, boolean>;
  /** Arguments that it needs, and the most that it takes. */
  readonly needed: number;
  readonly most: number;
}

function commands(): Map<string, Command> {
  const found = new Map<string, Command>();
  const reference = readFileSync('docs/reference/commands.md', 'utf8');
  for (const section of reference.split(/^## steptrain /m).slice(1)) {
    const usage = /^steptrain .*$/m.exec(section)?.[0] ?? '';
    const needed = usage.match(/<[^>]+>/g)?.length ?? 0;
    const several = usage.match(/\[\w[^\]]*\]/g)?.length ?? 0;
    const help = section.split('Examples:')[0] as string;
    const options = new Map<string, boolean>();
    for (const block of help.split(/^ +(?=-)/m).slice(1)) {
      const names = /^(?:--?[\w-]+(?:, +)?)+/.exec(block)?.[0].split(/, +/) ?? [];
      for (const name of names) options.set(name, !block.includes('[boolean]'));
    }
    const most = /\.\.[>\]]/.test(usage) ? Number.POSITIVE_INFINITY : needed + several;
    found.set(section.slice(0, section.indexOf('\n')), { options, needed, most });
  }
  return found;
}

/** Lines that begin with the command: in blocks of pages, and in comments of recipes. */
function told(): (readonly [place: string, line: string])[] {
  const yaml = readdirSync('recipes', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => [join('recipes', name), readFileSync(join('recipes', name), 'utf8')] as const);
  const ofPages = pages().filter(([name]) => !name.endsWith('commands.md'));
  const found: (readonly [string, string])[] = [];
  for (const [name, text] of ofPages)
    for (const [, line = ''] of text
      .replaceAll(/\\\n\s*/g, ' ')
      .matchAll(/^ {4}(?:[A-Z_]+=\S+ )*(?:npx )?(steptrain .*)$/gm))
      found.push([name, line]);
  for (const [name, text] of yaml)
    for (const [, line = ''] of text.matchAll(/^#.*? (steptrain [a-z].*)$/gm)) found.push([name, line]);
  return found;
}

/** Words of a line of a shell, to where another command, a comment or an explanation begins. */
function words(line: string): string[] {
  const [own = ''] = line.split(/ {2,}| #| …| [|>&<]|[;)`]|: /);
  return [...own.matchAll(/(?:'[^']*'|"[^"]*"|\S)+/g)].map(([word]) => word).slice(1);
}

const known = commands();

/** What is wrong with a line; undefined where it is a command. */
function fault(line: string): string | undefined {
  const all = words(line);
  if (all.length === 0 || all[0]?.startsWith('-')) return undefined;
  const length = [2, 1].find((count) => known.has(all.slice(0, count).join(' ')));
  if (!length) return `there is no command ${all[0]}`;
  const { options, needed, most } = known.get(all.slice(0, length).join(' ')) as Command;
  let given = 0;
  for (let i = length; i < all.length; i++) {
    const word = all[i] as string;
    const name = word.split('=')[0] as string;
    if (!/^--?[a-z]/.test(word)) given += 1;
    else if (!options.has(name) && !options.has(name.replace('--no-', '--')))
      return `there is no option ${name}`;
    else if (options.get(name) && name === word) i++;
  }
  if (given > most) return `it takes ${most} arguments, ${given} are given`;
  return given < needed ? `it needs ${needed} arguments, ${given} are given` : undefined;
}

it('every command that is told can be given', () => {
  const lines = told();
  const faults = lines.flatMap(([place, line]) => {
    const wrong = fault(line);
    return wrong === undefined ? [] : [`${place}: ${line}: ${wrong}`];
  });
  expect(faults).toEqual([]);
  expect(lines.length).toBeGreaterThan(300);
});
