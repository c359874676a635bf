// The names of methods: those of the table, and those under which people know the algorithms of one method.
import { ConfigError } from './error.js';
import type { Locate } from './issues.js';
import type { Override } from './overrides.js';
import type { MethodSchemas } from './schema.js';
import { isSection } from './values.js';

/** Every name that `method:` takes. */
export function methodNames(methods: MethodSchemas): string[] {
  return Object.entries(methods).flatMap(([name, { algorithms }]) => [
    name,
    ...(algorithms?.names ?? []).filter((algorithm) => algorithm !== name),
  ]);
}

/** The key that holds the algorithm: its section, and its name there. */
export type ImpliedKey = readonly [string, string];

interface Meaning {
  readonly method: string;
  readonly key: ImpliedKey;
}

/** The method and algorithm that a name stands for; undefined if it is that of a method, or none. */
function meaningOf(methods: MethodSchemas, name: unknown): Meaning | undefined {
  if (typeof name !== 'string' || Object.hasOwn(methods, name)) return undefined;
  for (const [method, { algorithms }] of Object.entries(methods))
    if (algorithms?.names.includes(name)) return { method, key: algorithms.key };
  return undefined;
}

/**
 * `method: grpo` as `method: ppo` with `ppo.algorithm: grpo`, in place.
 *
 * @returns the key that the name implied, which holds until another method is named
 * @throws ConfigError where the same text has another algorithm
 */
export function spellOutMethod(
  methods: MethodSchemas,
  value: Record<string, unknown>,
  locate: Locate,
): ImpliedKey | undefined {
  const name = value.method;
  const meaning = meaningOf(methods, name);
  if (meaning === undefined) return undefined;
  const [section, key] = meaning.key;
  const keys = value[section] ?? {};
  // Another kind of value is refused as such later.
  if (isSection(keys)) {
    const written = keys[key];
    if (written !== undefined && written !== name)
      throw contradiction(locate(['method']), `${name}`, meaning, String(written));
    value[section] = { ...keys, [key]: name };
  }
  value.method = meaning.method;
  return meaning.key;
}

/** Takes back what the name of a method implied, once another one is named above it. */
export function forget(value: Record<string, unknown>, implied: ImpliedKey | undefined): void {
  const section = implied && value[implied[0]];
  if (isSection(section)) delete section[implied?.[1] as string];
}

/** Spells out a method name in settings of the command line, which override those of a file. */
export function spellOutOverrides(methods: MethodSchemas, overrides: readonly Override[]): Override[] {
  const named = overrides.findLast(({ path }) => path.length === 1 && path[0] === 'method');
  const name = named && methodTyped(named);
  const meaning = meaningOf(methods, name);
  if (named === undefined || name === undefined || meaning === undefined) return [...overrides];
  const other = overrides.find(({ path }) => path.join('.') === meaning.key.join('.'));
  if (other && unquoted(other.text) !== name)
    throw contradiction(named.origin, name, meaning, unquoted(other.text));
  const rest = overrides.filter((override) => override !== named);
  return [{ ...named, text: meaning.method }, { ...named, path: meaning.key, text: name }, ...rest];
}

/** The name that `--set method=NAME` gives; sweeps write it in quotes. */
export function methodTyped({ text }: Override): string {
  return unquoted(text);
}

const unquoted = (text: string) => text.trim().replace(/^(["'])(.*)\1$/, '$2');

function contradiction(where: string, name: string, { method, key }: Meaning, found: string): ConfigError {
  const dotted = key.join('.');
  return new ConfigError(
    `${where}: method ${name} is method ${method} with ${dotted} ${name}, and ${dotted} is ${found}; leave out one of the two`,
  );
}
