// Sections of one recipe laid on those of another.
import { isSection } from './issues.js';

type Section = Record<string, unknown>;

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
