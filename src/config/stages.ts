// The keys that the sections of training stages take from the section `optimizer`.

import { optimizer } from './optimizer.js';
import { type Outline, sectionOf } from './outline.js';
import { isSection, type Section } from './values.js';

/** The sections of training stages, each with its keys that `optimizer` has too. */
export function stageKeys(outline: Outline): ReadonlyMap<string, readonly string[]> {
  const stages = Object.entries(outline.properties ?? {}).map(([name, node]): [string, readonly string[]] => {
    const keys = Object.entries(sectionOf(node)?.properties ?? {});
    const isStage = keys.some(([, own]) => own.shared === 'optimizer');
    return [
      name,
      isStage ? keys.flatMap(([key]) => (Object.hasOwn(optimizer.unwrap().shape, key) ? [key] : [])) : [],
    ];
  });
  return new Map(stages.filter(([, keys]) => keys.length > 0));
}

/**
 * Sets the keys of `given` in each stage of `value` that lacks them, or (`over`) in every stage. Returns the keys set,
 * as `section.key`.
 */
export function giveStages(
  value: Section,
  given: Section,
  outline: Outline,
  { over = false }: { readonly over?: boolean } = {},
): string[] {
  return [...stageKeys(outline)].flatMap(([name, keys]) => {
    const own = value[name] ?? {};
    if (!isSection(own)) return [];
    const taken = keys.filter((key) => Object.hasOwn(given, key) && (over || !Object.hasOwn(own, key)));
    if (taken.length > 0)
      value[name] = { ...own, ...Object.fromEntries(taken.map((key) => [key, given[key]])) };
    return taken.map((key) => `${name}.${key}`);
  });
}
