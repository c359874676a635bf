// Changes to a tree: one sign chosen for every ±, and units left out.

import type { Node } from './syntax.js';
import { changesNumber, isPercent, numberWords } from './units.js';

/** Whether an expression has a ± in it, outside brackets of lists and matrices. */
export function containsPlusMinus(node: Node): boolean {
  return node.kind === 'plusminus' || partsOf(node).some(containsPlusMinus);
}

/** The expression with + for every ± and - for every ∓, or the other way round with `lower`. */
export function withSign(node: Node, lower: boolean): Node {
  if (node.kind !== 'plusminus') return mapped(node, (part) => withSign(part, lower));
  const of = withSign(node.of, lower);
  return node.flipped === lower ? of : { kind: 'negative', of };
}

/** The parts of an expression. Tuples count, sets and lists do not: their items are alternatives already. */
function partsOf(node: Node): readonly Node[] {
  const parts: Node[] = [];
  if (node.kind !== 'list' && node.kind !== 'relation' && !(node.kind === 'group' && node.open === '{'))
    mapped(node, (part) => {
      parts.push(part);
      return part;
    });
  return parts;
}

export interface Stripped {
  readonly node: Node;
  /** Whether percent was among the units left out. */
  readonly percent: boolean;
}

/**
 * The tree without its units, or undefined where it has none: `5\text{ cm}` is 5. A dozen or two thirds are no unit,
 * and arguments of functions keep theirs: sin 30° is not sin 30.
 *
 * @param larger in which unit a quantity of several is counted: the last for 0, the one before it for 1, and so on, so that
 * `2 dollars 50 cents` is 250 and 2.5; undefined where no quantity has so many
 */
export function withoutUnits(node: Node, larger = 0): Stripped | undefined {
  let found = false;
  let percent = false;
  const strip = (part: Node): Node => {
    if (part.kind === 'call') return part;
    if (part.kind !== 'unit') return mapped(part, strip);
    const { value, alone } = numberWords(part.words);
    if (alone || changesNumber(part.words)) return part;
    const whole = part.wholes?.[larger - 1];
    found ||= larger === 0 || whole !== undefined;
    percent ||= isPercent(part.words);
    const counted = whole && { over: whole.under, under: whole.over };
    return { kind: 'number', value: counted ?? { over: BigInt(value), under: 1n }, text: '' };
  };
  const stripped = strip(node);
  return found ? { node: stripped, percent } : undefined;
}

/** The node with `change` applied to every part. */
function mapped(node: Node, change: (part: Node) => Node): Node {
  switch (node.kind) {
    case 'sum':
      return { ...node, terms: node.terms.map(change) };
    case 'product':
      return { ...node, factors: node.factors.map(change) };
    case 'negative':
    case 'inverse':
    case 'root':
    case 'plusminus':
      return { ...node, of: change(node.of) };
    case 'power':
      return { ...node, base: change(node.base), exponent: change(node.exponent) };
    case 'call':
      return { ...node, args: node.args.map(change) };
    case 'group':
    case 'list':
      return { ...node, items: node.items.map(change) };
    case 'relation':
      return { ...node, sides: node.sides.map(change) };
    case 'union':
    case 'ratio':
      return { ...node, parts: node.parts.map(change) };
    case 'difference':
      return { ...node, from: change(node.from), without: change(node.without) };
    case 'matrix':
      return { ...node, rows: node.rows.map((row) => row.map(change)) };
    default:
      return node;
  }
}
