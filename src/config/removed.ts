/** Keys of earlier versions: their recipes, and the runs that they began, go on where this version can do what they say. */
import { describeValue, isSection, type Locate } from './issues.js';

/** One that has another name now, or one that is gone: with the value that asked for nothing, and what to do about another. */
type Removed = { readonly now: string } | { readonly idle: unknown; readonly advice: string };

const REMOVED: Readonly<Record<string, Removed>> = {
  'reward.steps.run': { now: 'reward.steps.model' },
  'reward.outcome.run': { now: 'reward.outcome.model' },
  'data.word_problems.correction_rate': {
    idle: 0,
    advice: 'solutions with a wrong version before a line are made no more: set it to 0, or remove it',
  },
};

export interface Replaced {
  /** What was renamed or left out, a sentence each. */
  readonly notes: readonly string[];
  /** Values that this version cannot do, a sentence each. */
  readonly wrong: readonly string[];
}

/** Renames removed keys of `value`, or takes out those that ask for nothing. */
export function replaceRemoved(value: Record<string, unknown>, locate: Locate): Replaced {
  const notes: string[] = [];
  const wrong: string[] = [];
  for (const [key, removed] of Object.entries(REMOVED)) {
    const path = key.split('.');
    const last = path.at(-1) as string;
    const section = sectionAt(value, path.slice(0, -1));
    if (section === undefined || !Object.hasOwn(section, last)) continue;
    const place = locate(path, { key: true });
    const own = section[last];
    delete section[last];
    if ('now' in removed) {
      const name = removed.now.split('.').at(-1) as string;
      section[name] ??= own;
      notes.push(`${place}: ${key} is ${removed.now} now`);
    } else if (own === removed.idle)
      notes.push(`${place}: ${key} is no longer a key, and ${JSON.stringify(own)} asked for nothing`);
    else wrong.push(`${place}: ${key} is no longer a key, found ${describeValue(own)}; ${removed.advice}`);
  }
  return { notes, wrong };
}

/** Values by dotted key, with removed keys under their names of today; those that asked for nothing are left out. */
export function withoutRemoved(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) => {
      const removed = Object.hasOwn(REMOVED, key) ? (REMOVED[key] as Removed) : undefined;
      if (removed === undefined) return [[key, value]];
      if ('now' in removed) return [[removed.now, value]];
      return value === removed.idle ? [] : [[key, value]];
    }),
  );
}

function sectionAt(
  value: Record<string, unknown>,
  path: readonly string[],
): Record<string, unknown> | undefined {
  let section: unknown = value;
  for (const key of path) section = isSection(section) ? section[key] : undefined;
  return isSection(section) ? section : undefined;
}
