/** Keys of earlier versions: their recipes, and the runs that they began, go on where this version can do what they say. */
import type { z } from 'zod';
import { describeValue, type Locate } from './issues.js';
import type { MethodSchema } from './schema.js';
import { merged, setAt, takeAt, walk } from './values.js';

/** Keys that have other names in every method. */
const RENAMED: Readonly<Record<string, string>> = {
  'reward.steps.run': 'reward.steps.model',
  'reward.outcome.run': 'reward.outcome.model',
};

/** Keys that are gone, with the value that asked for nothing, and what to do about another. */
const REMOVED: Readonly<Record<string, { readonly idle: unknown; readonly advice: string }>> = {
  'data.word_problems.correction_rate': {
    idle: 0,
    advice: 'solutions with a wrong version before a line are made no more: set it to 0, or remove it',
  },
};

export const isRemoved = (path: readonly string[]) => Object.hasOwn(REMOVED, path.join('.'));

export interface Replaced {
  /** What was left out, a sentence each. */
  readonly notes: readonly string[];
  /** Values that this version cannot do, a sentence each. */
  readonly wrong: readonly string[];
}

/** Takes removed keys out of `value`. */
export function replaceRemoved(value: Record<string, unknown>, locate: Locate): Replaced {
  const notes: string[] = [];
  const wrong: string[] = [];
  for (const [key, removed] of Object.entries(REMOVED)) {
    const path = key.split('.');
    if (!isThere(value, key)) continue;
    const place = locate(path, { key: true });
    const own = takeAt(value, path);
    if (own === removed.idle)
      notes.push(`${place}: ${key} is no longer a key, and ${JSON.stringify(own)} asked for nothing`);
    else wrong.push(`${place}: ${key} is no longer a key, found ${describeValue(own)}; ${removed.advice}`);
  }
  return { notes, wrong };
}

type FormerNames = NonNullable<MethodSchema['formerly']>;

/** The earlier names of keys, with those of today, where a method has `own` ones. */
export const formerNames = (own: FormerNames = {}): FormerNames => ({ ...RENAMED, ...own });

/** `formerly` of a method whose keys of one section are now those of another. */
export function movedKeys(from: string, to: string, section: z.ZodPrefault<z.ZodObject>): FormerNames {
  return Object.fromEntries(
    Object.keys(section.unwrap().shape).map((key) => [`${from}.${key}`, `${to}.${key}`]),
  );
}

/** The path of today for one that may be of an earlier version. */
export function nowAt(path: readonly string[], formerly: FormerNames): readonly string[] {
  const longest = Math.max(0, ...Object.keys(formerly).map((name) => name.split('.').length));
  for (let length = Math.min(path.length, longest); length > 0; length--) {
    const former = path.slice(0, length).join('.');
    if (Object.hasOwn(formerly, former))
      return [...(formerly[former] as string).split('.'), ...path.slice(length)];
  }
  return path;
}

/** Whether `value` has something under a dotted key. */
export function isThere(value: Record<string, unknown>, key: string): boolean {
  const path = key.split('.');
  return walk(value, path).depth === path.length;
}

/** Gives what `value` has under earlier names the names of today, in place. The earlier names that were there. */
export function renameFormer(value: Record<string, unknown>, formerly: FormerNames): string[] {
  return Object.keys(formerly).filter((former) => {
    const path = former.split('.');
    if (!isThere(value, former)) return false;
    const renamed = {};
    setAt(renamed, nowAt(path, formerly), takeAt(value, path));
    Object.assign(value, merged(renamed, value));
    return true;
  });
}

/** `ppo is verdict_ppo now, …` */
export const renamings = (former: readonly string[], formerly: FormerNames) =>
  former.map((name) => `${name} is ${formerly[name]} now`).join(', ');

/** Values by dotted key, under their names of today; those of removed keys that asked for nothing are left out. */
export function withoutRemoved(
  values: Readonly<Record<string, unknown>>,
  own?: FormerNames,
): Record<string, unknown> {
  const formerly = formerNames(own);
  const today = Object.entries(values).map(
    ([key, value]) => [nowAt(key.split('.'), formerly).join('.'), value] as const,
  );
  return Object.fromEntries(
    today.filter(([key, value]) => REMOVED[key]?.idle !== value || !(key in REMOVED)),
  );
}
