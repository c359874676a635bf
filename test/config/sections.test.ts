// A section of a recipe means one thing: its keys do not depend on the method.
import { expect, it } from 'vitest';
import type { z } from 'zod';
import { methods } from '../../src/methods/table.js';

interface Node {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly anyOf?: readonly Node[];
}

/** Dotted keys of a section. */
function keysOf(node: Node, name = ''): string[] {
  const sections = [node, ...(node.anyOf ?? [])].flatMap(({ properties }) =>
    properties ? [properties] : [],
  );
  if (sections.length === 0) return [name];
  return sections.flatMap((properties) =>
    Object.entries(properties).flatMap(([key, of]) => keysOf(of, name === '' ? key : `${name}.${key}`)),
  );
}

it('has the same keys under every method, or another name', () => {
  const found = new Map<string, Set<string>>();
  for (const { schema } of Object.values(methods)) {
    const { properties = {} } = (schema as z.ZodType).toJSONSchema({ io: 'input' }) as Node;
    for (const [section, node] of Object.entries(properties)) {
      const keys = keysOf(node).sort().join(' ');
      found.set(section, (found.get(section) ?? new Set()).add(keys));
    }
  }
  const different = [...found].filter(([, keys]) => keys.size > 1).map(([section]) => section);
  expect(different).toEqual([]);
});
