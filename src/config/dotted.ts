/** A configuration, or what else is made of sections, by dotted key; lists are values, and what is undefined is left out. */
export function dotted(value: unknown, path = ''): (readonly [string, unknown])[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [[path, value ?? null]];
  return Object.entries(value).flatMap(([key, child]) =>
    child === undefined ? [] : dotted(child, path === '' ? key : `${path}.${key}`),
  );
}
