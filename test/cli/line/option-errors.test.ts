// Every option of every command, given what it cannot take: one sentence that names it, exit code 1, and nothing is done.
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { repetitions } from '../../repetitions.js';
import { cli } from '../run-cli.js';

interface Option {
  readonly name: string;
  readonly kind: string;
}

/** Names with what they need, and their options. */
const commands = new Map<string, readonly Option[]>();
beforeAll(() => {
  // A test compares the page with the commands' help, which takes seconds.
  const page = readFileSync('docs/reference/commands.md', 'utf8');
  for (const section of page.split(/^## steptrain /m).slice(1)) {
    const [path = '', ...lines] = section.split('\n');
    const help = lines.join('\n');
    const blocks = help.split(/^ +(?=(?:-\w, +)?--[a-z])/m).slice(1);
    const options = blocks.flatMap((block) => {
      const [, name] = /^(?:-\w, +)?--([a-z][a-z0-9-]*)/.exec(block) ?? [];
      const [, kind] = /\[(number|string|choices: [^\]]*)\]/.exec(block.split('\n\n')[0] ?? '') ?? [];
      return name === undefined || kind === undefined ? [] : [{ name, kind }];
    });
    commands.set([...path.split(' '), ...positionals(help)].join(' '), options);
  }
});

/** A word for each argument that the command needs. */
const positionals = (help: string) =>
  (/^steptrain .*$/m.exec(help)?.[0].match(/<[^>]+>/g) ?? []).map((_, i) => `word${i}`);

/** The first case of a command: each takes a tenth of a second. All before a release. */
const some = <Case>(cases: readonly Case[]) => cases.slice(0, repetitions(1, cases.length));

/** What is wrong in the outcome of a bad command line; undefined where it is one sentence about it. */
async function fault(args: readonly string[], about: string): Promise<string | undefined> {
  const { code, stdout, stderr } = await cli(...args);
  const isSentence = code === 1 && stdout === '' && stderr !== '' && !stderr.includes('\n');
  // What the command cannot do without may be asked for first.
  const isAbout = stderr.includes(about) || /^--\S+ must be given$/.test(stderr);
  const speaks = isAbout && !/undefined|NaN|\[object|null|Error:|\bat \//.test(stderr);
  return isSentence && speaks ? undefined : `steptrain ${args.join(' ')}: ${code}: ${stdout}${stderr}`;
}

async function faults(
  cases: (path: string, options: readonly Option[]) => readonly (readonly [string[], string])[],
) {
  const found: string[] = [];
  let asked = 0;
  for (const [path, options] of commands)
    for (const [more, about] of some(cases(path, options))) {
      asked++;
      const wrong = await fault([...path.split(' '), ...more], about);
      if (wrong !== undefined) found.push(wrong);
    }
  return { found, asked };
}

describe('bad options', () => {
  it('that no command has', async () => {
    const { found, asked } = await faults(() => [[['--no-such-thing-here'], '']]);
    expect(found).toEqual([]);
    expect(asked).toBeGreaterThan(30);
  });

  it('that expect a number and get a word, or nothing', async () => {
    const { found, asked } = await faults((_, options) =>
      options
        .filter(({ kind }) => kind === 'number')
        .flatMap(({ name }) => [
          [[`--${name}`, 'soon'], `--${name}`],
          [[`--${name}`], `--${name}`],
        ]),
    );
    expect(found).toEqual([]);
    expect(asked).toBeGreaterThan(15);
  });

  it('that expect one of some words', async () => {
    const { found, asked } = await faults((_, options) =>
      options
        .filter(({ kind }) => kind.startsWith('choices'))
        .map(({ name }) => [[`--${name}`, 'nonsense'], `--${name}`]),
    );
    expect(found).toEqual([]);
    expect(asked).toBeGreaterThan(5);
  });

  it('that expect a text and get nothing', async () => {
    const { found, asked } = await faults((_, options) =>
      options.filter(({ kind }) => kind === 'string').map(({ name }) => [[`--${name}`], `--${name}`]),
    );
    expect(found).toEqual([]);
    expect(asked).toBeGreaterThan(15);
  });
});
