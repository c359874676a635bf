// Whether two trees mean the same: relations, lists, sets, tuples, matrices, ratios, words, and their expressions.
import type { Algebra } from './algebra.js';
import {
  type NamedValues,
  named,
  nameKey,
  recordsOf,
  valueOfQuantity,
  withoutApproximation,
} from './names.js';
import { wordsForm } from './normalise.js';
import { FLIPPED, sameReals } from './reals.js';
import { containsPlusMinus, withSign } from './rewrite.js';
import { proportion, ratioOf, type ScalarMethod, sameValue } from './scalar.js';
import { type MatrixNode, type Node, quotient, type RelationNode } from './syntax.js';

export interface CompareOptions {
  readonly algebra: Algebra;
  /** Significant digits from which a decimal equals the value that it is rounded from. */
  readonly digits: number;
  /** The first tree is a reply, and may be an equation that says what the second is the value of. */
  readonly isReply?: boolean;
  /** Inside a set, where {2} differs from 2. */
  readonly inside?: boolean;
}

type Same = ScalarMethod | undefined;

const STRENGTH: readonly ScalarMethod[] = ['exact', 'numeric', 'rounded'];

/** The weakest comparison by which the trees agree; undefined if they differ. */
export function same(a: Node, b: Node, options: CompareOptions): Same {
  options.algebra.budget.spend();
  const [left, right] = [plain(a), plain(b)];
  return (
    sameRelation(left, right, options) ??
    sameList(left, right, options) ??
    sameReals(options.algebra, left, right) ??
    sameTuple(left, right, options) ??
    sameMatrix(left, right, options) ??
    sameRatio(left, right, options) ??
    sameWords(left, right) ??
    sameValue(options.algebra, left, right, options.digits)
  );
}

/** Both signs of ±, and nothing after ≈. */
function plain(node: Node): Node {
  if (node.kind === 'relation') return withoutApproximation(node);
  if (!containsPlusMinus(node)) return node;
  return { kind: 'list', items: bothSigns(node), alternatives: true };
}

function bothSigns(node: Node): Node[] {
  return containsPlusMinus(node) ? [withSign(node, false), withSign(node, true)] : [node];
}

/** Compares all pairs; undefined if the numbers of items differ. */
function sameItems(a: readonly Node[], b: readonly Node[], options: CompareOptions): Same {
  if (a.length !== b.length) return undefined;
  return weakest(a.map((item, i) => () => same(item, b[i]!, options)));
}

function weakest(checks: readonly (() => Same)[]): Same {
  let result = 0;
  for (const check of checks) {
    const method = check();
    if (method === undefined) return undefined;
    result = Math.max(result, STRENGTH.indexOf(method));
  }
  return STRENGTH[result];
}

function sameRelation(a: Node, b: Node, options: CompareOptions): Same {
  if (a.kind !== 'relation' && b.kind !== 'relation') return undefined;
  const [left, right] = [named(a), named(b)];
  if (a.kind === 'relation' && b.kind === 'relation') {
    const { algebra } = options;
    if (
      left !== undefined &&
      right !== undefined &&
      nameKey(algebra, left.name) === nameKey(algebra, right.name)
    ) {
      const method = same(left.value, right.value, options);
      if (method !== undefined) return method;
    }
    return sameEquation(a, b, options) ?? samePairs(a, b, options);
  }
  // A value and a value with its name, or with names of its own.
  const [pair, value] = left === undefined ? [right, a] : [left, b];
  if (pair === undefined) return sameQuantity(a, b, options) ?? sameSides(a, b, options);
  const hasNames = value.kind === 'list' && value.items.some((item) => item.kind === 'relation');
  if (!hasNames) return same(pair.value, value, options);
  const records = sameRecords([a.kind === 'relation' ? a : b], value.items, options);
  return records === 'differ' ? undefined : records;
}

/** A reply that says the value of a quantity of several names, `m + n = 293`, and that value. */
function sameQuantity(reply: Node, value: Node, options: CompareOptions): Same {
  const own = options.isReply && reply.kind === 'relation' ? valueOfQuantity(reply) : undefined;
  return own && same(own, value, options);
}

/** An equation without a name, and a value that every side of it has: `5 + 3 = 8` is 8. */
function sameSides(a: Node, b: Node, options: CompareOptions): Same {
  const [relation, value] = a.kind === 'relation' ? [a, b] : [b, a];
  if (relation.kind !== 'relation' || relation.operators.some((operator) => operator !== '='))
    return undefined;
  return weakest(relation.sides.map((side) => () => same(side, value, options)));
}

/** Two equations or inequalities whose sides have the same difference, up to a factor. */
function sameEquation(a: RelationNode, b: RelationNode, { algebra }: CompareOptions): Same {
  if (a.operators.length !== 1 || b.operators.length !== 1) return undefined;
  const [first, second] = [a.operators[0]!, b.operators[0]!];
  const [left, right] = [sidesApart(algebra, a), sidesApart(algebra, b)];
  if (left === undefined || right === undefined || FLIPPED[first] === undefined) return undefined;
  const isEquation = first === '=' || first === '≠';
  // If signs matter, the denominators must be the same.
  if (!isEquation && algebra.polynomials.key(left.under) !== algebra.polynomials.key(right.under))
    return undefined;
  const factor = proportion(algebra, left.over, right.over);
  if (factor === undefined) return undefined;
  if (!isEquation && hasNegativeExponent(left.over)) return undefined;
  return second === (factor.over > 0n ? first : FLIPPED[first]) ? 'exact' : undefined;
}

function sidesApart(algebra: Algebra, { sides }: RelationNode) {
  const [left, right] = sides.map((side) => ratioOf(algebra, side));
  return left === undefined || right === undefined ? undefined : algebra.subtract(left, right);
}

function hasNegativeExponent(
  polynomial: ReadonlyMap<string, { readonly powers: readonly (readonly [number, number])[] }>,
) {
  return [...polynomial.values()].some(({ powers }) => powers.some(([, exponent]) => exponent < 0));
}

/** The same signs between the same sides. */
function samePairs(a: RelationNode, b: RelationNode, options: CompareOptions): Same {
  if (a.operators.join() !== b.operators.join() || a.operators.every((operator) => operator === '='))
    return undefined;
  return sameItems(a.sides, b.sides, options);
}

function sameList(a: Node, b: Node, options: CompareOptions): Same {
  const [left, right] = [membersOf(a), membersOf(b)];
  if (left === undefined && right === undefined) return undefined;
  if (left === undefined || right === undefined) {
    const [members, other, isSet] =
      left === undefined ? [right!, a, b.kind !== 'list'] : [left, b, a.kind !== 'list'];
    const tuple = isSet || isPairInSquares(other) ? undefined : tupleOf(other);
    if (tuple !== undefined) return sameItems(members.map(valueIn), tuple, options);
    // `15\frac{39}{40} or \frac{639}{40}` is one value twice.
    const isOneValue = isSet
      ? members.length === 1 && !options.inside
      : (a.kind === 'list' ? a : b.kind === 'list' ? b : undefined)?.alternatives;
    return isOneValue ? weakest(members.map((member) => () => same(member, other, options))) : undefined;
  }
  const isSet = a.kind !== 'list' || b.kind !== 'list';
  const records = isSet ? undefined : sameRecords(left, right, options);
  if (records !== undefined) return records === 'differ' ? undefined : records;
  return sameSet(left, right, isSet, options);
}

/** The items of a bare list or of a set in braces. */
function membersOf(node: Node): readonly Node[] | undefined {
  if (node.kind === 'list' || (node.kind === 'group' && node.open === '{'))
    return node.items.flatMap(bothSigns);
  return undefined;
}

function valueIn(item: Node): Node {
  return named(item)?.value ?? item;
}

/** Lists with names: compared by name if both have names, else by place. */
function sameRecords(a: readonly Node[], b: readonly Node[], options: CompareOptions): Same | 'differ' {
  const { algebra } = options;
  const isNamed = (items: readonly Node[]) => items.length > 0 && named(items[0]!) !== undefined;
  if (!isNamed(a) && !isNamed(b)) return undefined;
  const [left, right] = [a, b].map((items) => (isNamed(items) ? recordsOf(algebra, items) : undefined));
  if (left !== undefined && right !== undefined) {
    const sameRecord = (one: NamedValues, two: NamedValues) =>
      one.size === two.size
        ? weakest(
            [...one].map(
              ([key, value]) =>
                () =>
                  two.has(key) ? same(value, two.get(key)!, options) : undefined,
            ),
          )
        : undefined;
    return matched(left, right, sameRecord) ?? 'differ';
  }
  const [records, items] = left === undefined ? [right, a] : [left, b];
  if (records === undefined || items.some((item) => item.kind === 'relation')) return undefined;
  const values = records.flatMap((record) => [...record.values()]);
  // One record has different names, so the order counts; records of one name each are alternatives.
  if (records.length === 1) return sameItems(values, items, options) ?? 'differ';
  if (records.some((record) => record.size > 1)) return 'differ';
  return matched(values, items, (one, two) => same(one, two, options)) ?? 'differ';
}

/** Compares items in any order. Duplicates count once in a set and in a list of tuples, which are solutions. */
function sameSet(a: readonly Node[], b: readonly Node[], isSet: boolean, options: CompareOptions): Same {
  const compare = (one: Node, two: Node) => same(one, two, isSet ? { ...options, inside: true } : options);
  const counts = isSet || [...a, ...b].every((item) => tupleOf(item) !== undefined);
  return counts ? matched(distinct(a, compare), distinct(b, compare), compare) : matched(a, b, compare);
}

function distinct(items: readonly Node[], compare: (a: Node, b: Node) => Same): readonly Node[] {
  const kept: Node[] = [];
  for (const item of items) if (!kept.some((other) => compare(item, other) !== undefined)) kept.push(item);
  return kept;
}

/** A one-to-one match of the items of both sides. */
function matched<T>(a: readonly T[], b: readonly T[], compare: (a: T, b: T) => Same): Same {
  if (a.length !== b.length) return undefined;
  const left = [...b];
  return weakest(
    a.map((item) => () => {
      for (const [i, other] of left.entries()) {
        const method = compare(item, other);
        if (method !== undefined) {
          left.splice(i, 1);
          return method;
        }
      }
      return undefined;
    }),
  );
}

function sameTuple(a: Node, b: Node, options: CompareOptions): Same {
  const [left, right] = [tupleOf(a), tupleOf(b)];
  if (left === undefined || right === undefined) return undefined;
  return isPairInSquares(a) === isPairInSquares(b) ? sameItems(left, right, options) : undefined;
}

/** `[1, 2]` is an interval and no tuple. */
function isPairInSquares(node: Node): boolean {
  return node.kind === 'group' && node.open === '[' && node.items.length === 2;
}

/** The entries of a tuple, or of a vector written as one column or row. */
function tupleOf(node: Node): readonly Node[] | undefined {
  if (node.kind === 'group') {
    const isTuple = (node.open === '(' && node.close === ')') || (node.open === '[' && node.close === ']');
    return isTuple ? node.items : undefined;
  }
  return undefined;
}

function sameMatrix(a: Node, b: Node, options: CompareOptions): Same {
  const [left, right] = [matrixOf(a), matrixOf(b)];
  if (left === undefined && right === undefined) return undefined;
  if (left === undefined || right === undefined) {
    const [matrix, tuple] = left === undefined ? [right!, tupleOf(a)] : [left, tupleOf(b)];
    const isVector = !matrix.bars && matrix.rows.length > 1 && matrix.rows.every((row) => row.length === 1);
    return tuple !== undefined && isVector ? sameItems(matrix.rows.flat(), tuple, options) : undefined;
  }
  const isSameShape =
    left.bars === right.bars &&
    left.rows.length === right.rows.length &&
    left.rows.every((row, i) => row.length === right.rows[i]!.length);
  return isSameShape ? sameItems(left.rows.flat(), right.rows.flat(), options) : undefined;
}

/** A matrix, also with a sign or a factor before it, which goes into its entries. */
function matrixOf(node: Node): MatrixNode | undefined {
  if (node.kind === 'matrix') return node;
  const scaled = (matrix: MatrixNode, scale: (entry: Node) => Node): MatrixNode | undefined =>
    matrix.bars ? undefined : { ...matrix, rows: matrix.rows.map((row) => row.map(scale)) };
  if (node.kind === 'negative') {
    const inner = matrixOf(node.of);
    return inner && scaled(inner, (of) => ({ kind: 'negative', of }));
  }
  if (node.kind !== 'product') return undefined;
  const matrices = node.factors.filter((factor) => factor.kind === 'matrix');
  const others = node.factors.filter((factor) => factor.kind !== 'matrix');
  return matrices.length === 1
    ? scaled(matrices[0]!, (entry) => ({ kind: 'product', factors: [...others, entry] }))
    : undefined;
}

function sameRatio(a: Node, b: Node, options: CompareOptions): Same {
  if (a.kind !== 'ratio' && b.kind !== 'ratio') return undefined;
  if (a.kind === 'ratio' && b.kind === 'ratio') {
    const isClock = [a, b].some(({ parts }) => parts.some((part) => /^0\d/.test(firstDigits(part))));
    if (isTime(a.parts) && isTime(b.parts)) return sameItems(a.parts, b.parts, options);
    if (isClock) return undefined;
    if (a.parts.length !== b.parts.length) return undefined;
    // a : b : c is d : e : f where b/a = e/d and c/a = f/d.
    const scaled = (parts: readonly Node[]) => parts.slice(1).map((part) => quotient(part, parts[0]!));
    return sameItems(scaled(a.parts), scaled(b.parts), options);
  }
  const [ratio, value] = a.kind === 'ratio' ? [a.parts, b] : [b.kind === 'ratio' ? b.parts : [], a];
  if (ratio.length !== 2 || isTime(ratio)) return undefined;
  return sameValue(options.algebra, quotient(ratio[0]!, ratio[1]!), value, options.digits);
}

/** `12:05` is a time of day, and so is `3:20 pm`. */
function isTime(parts: readonly Node[]): boolean {
  const [hours = '', ...others] = parts.map(firstDigits);
  return others.length > 0 && /^[012]?\d$/.test(hours) && others.every((digits) => /^[0-5]\d$/.test(digits));
}

/** The number that a part begins with, as it is written. */
function firstDigits(part: Node): string {
  const number = part.kind === 'product' ? part.factors[0]! : part;
  return number.kind === 'number' ? number.text : '';
}

function sameWords(a: Node, b: Node): Same {
  if (a.kind !== 'words' || b.kind !== 'words') return undefined;
  return wordsForm(a.text) === wordsForm(b.text) ? 'exact' : undefined;
}
