// Values of a configuration by their path through its sections.

export type Section = Record<string, unknown>;

export function isSection(value: unknown): value is Section {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value at `path`, and how many of its keys there are. */
export function walk(
  value: unknown,
  path: readonly PropertyKey[],
): { readonly found: unknown; readonly depth: number } {
  let found = value;
  for (const [depth, key] of path.entries()) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key))
      return { found: undefined, depth };
    found = (found as Record<PropertyKey, unknown>)[key];
  }
  return { found, depth: path.length };
}

/** Puts `own` into `value` and creates missing sections. */
export function setAt(value: Section, path: readonly string[], own: unknown): void {
  let section = value;
  for (const key of path.slice(0, -1)) {
    if (!isSection(section[key])) section[key] = {};
    section = section[key] as Section;
  }
  section[path.at(-1)!] = own;
}

/** Key by key; any other value of `above`, lists too, takes the place of the one in `below`. */
export function merged(below: Section, above: Section): Section {
  const result = new Map(Object.entries(below));
  for (const [key, value] of Object.entries(above)) {
    const under = result.get(key);
    // `sft:` with nothing in it is an empty section.
    if (isSection(under) && value === null) continue;
    result.set(key, isSection(under) && isSection(value) ? merged(under, value) : value);
  }
  return Object.fromEntries(result);
}
