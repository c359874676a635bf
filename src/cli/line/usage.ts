// Turns yargs' messages on a command line into sentences that name options as typed and suggest the nearest.

import { dirname } from 'node:path';
import { fileKind } from '../../files/kind.js';
import { nearestName } from '../../native/nearest.js';
import { typedCommand } from '../../native/typed-command.js';
import { UsageError } from './error.js';

/** The options and commands that exist where the mistake was made. */
interface Known {
  /** Names of options of the command, without dashes. */
  readonly options: readonly string[];
  /** The words of the command that was reached. */
  readonly words: readonly string[];
  /** Commands that could stand behind them. */
  readonly commands: readonly string[];
}

/** Commands of other programs with their counterparts here; none is similar to its own. */
const MEANT: Readonly<Record<string, string>> = {
  finetune: 'run',
  fit: 'run',
  resume: 'run --resume',
  evaluate: 'eval',
  test: 'eval',
  predict: 'generate',
  infer: 'generate',
  sample: 'generate',
  verify: 'judge',
  reward: 'score',
  annotate: 'label',
  dashboard: 'ui',
  info: 'doctor',
  env: 'doctor',
  push: 'hub push',
  list: 'recipes ls',
  ls: 'recipes ls',
};

/** Options that -n may mean in a command without it: the number sampled, made or read. */
const COUNTS = ['samples', 'max-samples', 'max-problems', 'max-rows', 'limit'];

export function usageSentence(message: string, args: readonly string[], known: Known): string {
  const text = message.replaceAll(/\s+/g, ' ').trim();
  if (known.words.length > 0 && known.commands.length > 0 && text.startsWith('Unknown argument')) {
    const word = wordAfter(known.words, args);
    const kind = word === undefined || known.words[0] !== 'inspect' ? undefined : kindOfFile(word);
    if (kind)
      return `inspect needs to know what a file is; did you mean ${typedCommand(`inspect ${kind} ${word}`)}?`;
    if (word !== undefined && !known.commands.includes(word)) return noSuchCommand(word, known);
  }
  const unknown = /^Unknown (?:arguments?|commands?): (.*)$/.exec(text)?.[1];
  const command = args.find((arg) => !arg.startsWith('-'));
  // yargs gives the same message for an unknown command as for an argument too many.
  if (unknown !== undefined && command !== undefined && unknown.split(', ').includes(command)) {
    const meant = MEANT[command.toLowerCase()] ?? nearestName(command, known.commands);
    return `there is no command ${command}; ${meant === undefined ? '' : `did you mean ${meant}? `}${typedCommand('--help')} lists them`;
  }
  if (unknown !== undefined) return unknownSentence(unknown.split(', '), args, known.options);
  const choice = /^Invalid values: Argument: (\S+), Given: (.*?), Choices: (.*)$/.exec(text);
  if (choice) {
    const [, name = '', given = '', choices = ''] = choice;
    return `${optionOf(name, args)} expects ${joined(choices.split(', ').map(unquoted), 'or')}, found ${unquoted(given)}`;
  }
  const missing = /^Missing required arguments?: (.*)$/.exec(text)?.[1];
  if (missing !== undefined)
    return `${joined(
      missing.split(', ').map((name) => `--${name}`),
      'and',
    )} must be given`;
  const noValue = /^Not enough arguments following: (.*)$/.exec(text)?.[1];
  if (noValue !== undefined) return `--${noValue} needs a value`;
  const few = /^Not enough non-option arguments: got (\d+), need at least (\d+)$/.exec(text);
  if (few) {
    const needed = few[2] === '1' ? '1 argument is' : `${few[2]} arguments are`;
    return `${needed} needed, found ${few[1]}; the same command with --help names them`;
  }
  const exclusive = /^Arguments (\S+) and (\S+) are mutually exclusive$/.exec(text);
  if (exclusive)
    return `${optionOf(exclusive[1] as string, args)} and ${optionOf(exclusive[2] as string, args)} exclude each other; give one of them`;
  const implied = /^(?:Missing dependent arguments|Implications failed): (\S+) -> (\S+)$/.exec(text);
  if (implied) return `--${implied[1]} needs --${implied[2]}`;
  return text;
}

/** The kind of a file, by its name. */
function kindOfFile(path: string): 'model' | 'data' | undefined {
  if (/\.gguf$/i.test(path)) return 'model';
  return /\.(jsonl|ndjson|csv|parquet|gz)$/i.test(path) ? 'data' : undefined;
}

/** The first word after those of a command. */
function wordAfter(words: readonly string[], args: readonly string[]): string | undefined {
  const typed = args.filter((arg) => !arg.startsWith('-'));
  return words.every((word, i) => typed[i] === word) ? typed[words.length] : undefined;
}

export function noSuchCommand(word: string, { words, commands }: Omit<Known, 'options'>): string {
  const nearest = nearestName(word, commands);
  const known = commands.length === 1 ? `known is ${commands[0]}` : `known are ${joined(commands, 'and')}`;
  const hint =
    nearest === undefined || commands.length === 1 ? known : `did you mean ${nearest}? K${known.slice(1)}`;
  return `${words.join(' ')} has no command ${word}; ${hint}`;
}

function unknownSentence(
  names: readonly string[],
  args: readonly string[],
  known: readonly string[],
): string {
  const sentences = names.map((name) => {
    const isOption = args.some(
      (arg) => arg === `--${name}` || arg.startsWith(`--${name}=`) || arg === `-${name}`,
    );
    const readsRecipe = known.includes('set');
    if (!isOption)
      return `there is no argument ${name} here${readsRecipe ? '; data are named by --set data.train=FILE' : ''}`;
    const isCount = name === 'n' && args.includes('-n');
    const nearest = isCount ? COUNTS.find((each) => known.includes(each)) : nearestName(name, known);
    const hint = readsRecipe ? `; keys of the recipe are given by --set, as in --set data.train=FILE` : '';
    return `there is no option ${isCount ? '-n' : `--${name}`}${nearest === undefined ? hint : `; did you mean --${nearest}?`}`;
  });
  return sentences.join('; ');
}

/** The option as it was typed, with dashes where it had them. */
function optionOf(name: string, args: readonly string[]): string {
  const typed = args.some((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
  const short = args.some((arg) => /^-[a-z]$/.test(arg));
  return typed || short ? `--${name}` : name;
}

const unquoted = (text: string) => text.replace(/^"(.*)"$/, '$1');

/** Parts with commas between, and `word` before the last. */
export function joined(parts: readonly string[], word: 'and' | 'or'): string {
  return parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} ${word} ${parts.at(-1)}`;
}

/**
 * The sentence on an option that takes one value and is given several times: of two values nobody knows which is meant, and some
 * commands would take neither.
 */
export function givenTwice(
  argv: Readonly<Record<string, unknown>>,
  { key, array }: { readonly key: object; readonly array: readonly string[] },
): string | undefined {
  for (const name of Object.keys(key)) {
    const values = argv[name];
    if (!Array.isArray(values) || array.includes(name) || values.length < 2) continue;
    if (values.every((value) => typeof value === 'boolean')) continue;
    return `${dashed(name)} is given ${values.length} times, with ${joined(values.map(String), 'and')}; give it once`;
  }
  return undefined;
}

/** The first option whose value is no number, as a sentence. */
export function noNumber(
  argv: Readonly<Record<string, unknown>>,
  args: readonly string[],
): string | undefined {
  // A long name before its alias of one letter.
  const [name] = Object.keys(argv)
    .filter((key) => Number.isNaN(argv[key]))
    .sort((a, b) => b.length - a.length);
  if (name === undefined) return undefined;
  const at = args.findIndex(
    (arg) => arg === `--${name}` || arg.startsWith(`--${name}=`) || /^-[a-z]$/.test(arg),
  );
  const given = at < 0 ? '' : (args[at]?.split('=', 2)[1] ?? args[at + 1] ?? '');
  return `${dashed(name)} expects a number, found ${given === '' ? 'something else' : given}`;
}

/** The name of an option as it is typed. */
function dashed(name: string): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}

/** @throws UsageError for an option that is given and is no whole number of at least so much */
export function checkWhole(args: object, least: Readonly<Record<string, number>>): void {
  for (const [name, limit] of Object.entries(least)) {
    const value = (args as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && Number(value) >= limit))
      throw new UsageError(`${dashed(name)} expects a whole number of at least ${limit}, found ${value}`);
  }
}

/**
 * @param path the file to write; undefined where the option is not given
 * @param name the option that gives it; none for an argument
 * @throws UsageError for a path with another ending, or of a file that is there, and where its folder is not
 */
export function checkNewFile(path: string | undefined, ending: '.json' | '.jsonl', name?: '--output'): void {
  if (path === undefined) return;
  if (!path.endsWith(ending))
    throw new UsageError(
      `${name ? `${name} expects` : 'expected'} a file name that ends in ${ending}, found ${path}`,
    );
  if (fileKind(path) !== undefined)
    throw new UsageError(`${path} is there already; choose another file${name ? ` for ${name}` : ''}`);
  checkFolder(`the folder of ${name ?? path}`, dirname(path));
}

export function checkPort(port: number): void {
  if (!Number.isInteger(port) || port < 0 || port > 65535)
    throw new UsageError(`--port expects a whole number from 0 to 65535, found ${port}`);
}

/** @param name the option or argument that gives it */
export function checkFolder(name: string, path: string): void {
  if (fileKind(path) !== 'directory')
    throw new UsageError(`${name} expects a directory that exists, found ${path}`);
}
