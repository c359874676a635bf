// Answers with the name of their value: `x = 5`, `|AB| = 1`, `(p, q) = (3, 2)`, `x = 1, y = 2`.
import type { Algebra } from './algebra.js';
import { ratioOf } from './scalar.js';
import type { Node, RelationNode } from './syntax.js';

export interface Named {
  readonly name: Node;
  readonly value: Node;
}

/** The last value of a chain of equations and its name; undefined for other relations. */
export function named(node: Node): Named | undefined {
  if (node.kind !== 'relation') return undefined;
  const { sides, operators } = node;
  if (operators.length === 1 && operators[0] === '∈' && isName(sides[0]!))
    return { name: sides[0]!, value: sides[1]! };
  if (operators.some((operator) => operator !== '=')) return undefined;
  const last = sides.at(-1)!;
  const name = sides.slice(0, -1).find(isName);
  if (name !== undefined) return { name, value: last };
  return sides.length === 2 && isName(last) ? { name: last, value: sides[0]! } : undefined;
}

/** A quantity by name: letters, their products and quotients, functions of them, tuples of them. No number, no sum. */
export function isName(node: Node): boolean {
  switch (node.kind) {
    case 'symbol':
      return !['e', 'i', '\\pi', '\\infty'].includes(node.name);
    case 'words':
      return true;
    case 'product':
      return node.factors.every(isName);
    case 'ratio':
      return node.parts.every(isName);
    case 'inverse':
      return isName(node.of);
    case 'group':
      return node.open === '(' && node.close === ')' && node.items.length > 1 && node.items.every(isName);
    case 'call':
      return (node.name === 'abs' && node.args.every(isName)) || node.name.endsWith('()');
    default:
      return false;
  }
}

/** The value of a quantity of several names: `m + n = 256 + 37 = 293` is 293, and `2x + 1 = 5`, which asks for x, is not 5. */
export function valueOfQuantity({ sides, operators }: RelationNode): Node | undefined {
  if (operators.some((operator) => operator !== '=')) return undefined;
  const [first, last] = [sides[0]!, sides.at(-1)!];
  const [quantity, value] = namesIn(first).size > 0 ? [first, last] : [last, first];
  return namesIn(quantity).size > 1 && namesIn(value).size === 0 ? value : undefined;
}

/** The letters and functions that an expression is made of; none in a number, in words or in brackets of several items. */
function namesIn(node: Node): ReadonlySet<string> {
  switch (node.kind) {
    case 'symbol':
      return new Set(isName(node) ? [node.name] : []);
    case 'sum':
      return union(node.terms);
    case 'product':
      return union(node.factors);
    case 'negative':
    case 'inverse':
    case 'root':
      return namesIn(node.of);
    case 'power':
      return union([node.base, node.exponent]);
    case 'call':
      return node.name.endsWith('()') ? new Set([written(node)]) : union(node.args);
    default:
      return new Set();
  }
}

const union = (nodes: readonly Node[]): ReadonlySet<string> =>
  new Set(nodes.flatMap((node) => [...namesIn(node)]));

/** A key that is equal for equal names. */
export function nameKey(algebra: Algebra, node: Node): string {
  if (node.kind === 'words') return `words ${node.text}`;
  if (node.kind === 'group') return `(${node.items.map((item) => nameKey(algebra, item)).join(',')})`;
  if (node.kind === 'ratio') return node.parts.map((part) => nameKey(algebra, part)).join(':');
  const value = ratioOf(algebra, node);
  return value === undefined ? written(node) : algebra.key(value);
}

const written = (node: Node): string =>
  JSON.stringify(node, (_, part) => (typeof part === 'bigint' ? `${part}` : part));

/** `(x, y) = (1, 2)` as x = 1 and y = 2. */
export function spread({ name, value }: Named): readonly Named[] {
  const isPair = name.kind === 'group' && value.kind === 'group' && value.open === '(' && value.close === ')';
  if (!isPair || name.items.length !== value.items.length) return [{ name, value }];
  return name.items.map((item, i) => ({ name: item, value: value.items[i]! }));
}

/** Values by name. */
export type NamedValues = ReadonlyMap<string, Node>;

/**
 * A list of equations as records, a new one where a name comes again: `x = 1, y = 2; x = 3, y = 4` are two solutions.
 * Undefined where an item is not named. `n = 2, 3, 4` names all its values n.
 */
export function recordsOf(algebra: Algebra, items: readonly Node[]): readonly NamedValues[] | undefined {
  const records: Map<string, Node>[] = [];
  const first = named(items[0]!);
  const isSeries = first !== undefined && items.slice(1).every((item) => item.kind !== 'relation');
  for (const item of items) {
    const pair = isSeries && item !== items[0] ? { name: first.name, value: item } : named(item);
    if (pair === undefined) return undefined;
    for (const { name, value } of spread(pair)) {
      algebra.budget.spend();
      const key = nameKey(algebra, name);
      if (records.length === 0 || records.at(-1)!.has(key)) records.push(new Map());
      records.at(-1)!.set(key, value);
    }
  }
  return records;
}

/** The side before `≈`; if it is only a name, `≈` is read as `=`. */
export function withoutApproximation(node: RelationNode): Node {
  const at = node.operators.indexOf('≈');
  if (at < 0) return node;
  const isNamed = at === 0 && isName(node.sides[0]!);
  const count = isNamed ? 2 : at + 1;
  const sides = node.sides.slice(0, count);
  if (sides.length === 1) return sides[0]!;
  return { kind: 'relation', sides, operators: isNamed ? ['='] : node.operators.slice(0, count - 1) };
}
