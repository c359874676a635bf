/** Values in messages: those that somebody gave, never more than a line whatever they are, and counts. */

const CHARACTERS = 60;
const ITEMS = 6;
const DEPTH = 2;

/** The beginning of a text. */
export function clipped(text: string, characters = CHARACTERS): string {
  return text.length > characters ? `${text.slice(0, characters - 1)}…` : text;
}

/** A value as JSON writes it, at most 60 characters; `nothing` for undefined. Long lists are read no further than that. */
export function shown(value: unknown): string {
  return clipped(written(value, DEPTH));
}

/** `1 solution`, `2 solutions`. */
export function plural(amount: number, one: string): string {
  return `${amount} ${amount === 1 ? one : `${one}s`}`;
}

function written(value: unknown, depth: number): string {
  if (value === undefined) return 'nothing';
  if (typeof value === 'string') return JSON.stringify(value.slice(0, CHARACTERS));
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  if (ArrayBuffer.isView(value) && 'length' in value) {
    const { name } = value.constructor;
    return `a ${name} of ${value.length}`;
  }
  if (Array.isArray(value)) {
    if (depth === 0) return `a list of ${value.length}`;
    return `[${listed(
      value.slice(0, ITEMS).map((item) => written(item, depth - 1)),
      value.length,
    )}]`;
  }
  const made: unknown = value.constructor;
  if (made !== Object && typeof made === 'function')
    return `${/^[AEIOU]/.test(made.name) ? 'an' : 'a'} ${made.name}`;
  if (depth === 0) return 'an object';
  const keys = Object.keys(value);
  const entries = keys
    .slice(0, ITEMS)
    .map((key) => `${written(key, 0)}:${written((value as Record<string, unknown>)[key], depth - 1)}`);
  return `{${listed(entries, keys.length)}}`;
}

function listed(items: readonly string[], count: number): string {
  return items.join(',') + (count > items.length ? ',…' : '');
}
