// Every command that a page, a recipe or README tells to type is one that the command line takes.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { commandLine } from '../../src/cli/cli.js';
import { describeError } from '../../src/cli/error.js';
import { pages } from './pages.js';

/** Commands are read, not run. */
vi.mock(import('../../src/cli/command.js'), async (original) => {
  const { command, ...others } = await original();
  return { ...others, command: (module) => command({ ...module, handler: () => {} }) };
});

interface Told {
  readonly text: string;
  /** It stands in a sentence, where a command may lack its arguments. */
  readonly inSentence: boolean;
}

/** Words as a shell takes them, up to what stands behind the command. */
function words(line: string): string[] {
  const found = line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\|\|?|&&|[;#]|>>?|<<?)(?=\s|$)|([^\s"']+)/g);
  const all: string[] = [];
  for (const [, double, single, end, plain] of found) {
    if (end !== undefined) break;
    all.push(double ?? single ?? (plain as string).replace(/[;)]+$/, ''));
  }
  return all;
}

function toldBy(text: string): Told[] {
  const whole = text.replaceAll(/\\\n\s*/g, '');
  const found: Told[] = [];
  for (const line of whole.split('\n')) {
    const [, typed] = /^(?: {4,}|#\s.*?\s{2,}|#\s+)(?:\$ )?(?:npx )?steptrain (.*)$/.exec(line) ?? [];
    if (typed !== undefined) found.push({ text: typed, inSentence: false });
    for (const [, inside] of line.matchAll(/`(?:npx )?steptrain ([^`]+)`/g))
      found.push({ text: inside as string, inSentence: true });
  }
  // What stands for anything is no command: …, [OPTIONS], a | b.
  return found.filter((each) => !/…|\.\.\.|\[|\$\(|\bNAME=/.test(each.text));
}

const known = new Map<string, Promise<string | undefined>>();

function complaint(told: Told): Promise<string | undefined> {
  const key = `${told.inSentence} ${told.text}`;
  const found = known.get(key) ?? read(told);
  known.set(key, found);
  return found;
}

async function read({ text, inSentence }: Told): Promise<string | undefined> {
  const args = words(text);
  if (args.length === 0 || args.includes('--help')) return undefined;
  const print = vi.spyOn(console, 'log').mockImplementation(() => {});
  try {
    await commandLine(args).exitProcess(false).parseAsync();
    return undefined;
  } catch (error) {
    const sentence = describeError(error, { stacks: false });
    const isUnknown = /there is no (?:option|argument|command)|has no command|expects/.test(sentence);
    return inSentence && !isUnknown ? undefined : `steptrain ${text}: ${sentence}`;
  } finally {
    print.mockRestore();
  }
}

const recipes = readdirSync('recipes', { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => [`recipes/${name}`, readFileSync(join('recipes', name), 'utf8')] as const);

it('finds what is wrong', async () => {
  const told = toldBy(
    '    npx steptrain score runs/a rows.jsonl\nUse `steptrain eval` or `steptrain run --ouput x`.',
  );
  expect(await Promise.all(told.map(complaint))).toEqual([
    expect.stringContaining('there is no argument rows.jsonl here'),
    undefined,
    expect.stringContaining('did you mean --output?'),
  ]);
});

/** The page of all commands is their own help. */
const told = pages().filter(([name]) => !name.endsWith('commands.md'));

it.each([...told, ...recipes])('%s tells commands that there are', async (_, text) => {
  const wrong: string[] = [];
  for (const told of toldBy(text)) {
    const sentence = await complaint(told);
    if (sentence !== undefined) wrong.push(sentence);
  }
  expect(wrong).toEqual([]);
});
