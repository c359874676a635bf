// Sets of real numbers as unions of intervals: from brackets, unions, inequalities and excluded points.
import type { Algebra } from './algebra.js';
import type { Polynomial, Ratio } from './polynomial.js';
import * as rational from './rational.js';
import { realValue } from './sampling.js';
import { ratioOf, type ScalarMethod, sameRatio } from './scalar.js';
import type { Node, RelationNode } from './syntax.js';

interface End {
  readonly value: Ratio;
  /** The value as a double, which orders ends that exact comparison does not order. */
  readonly at: number;
  readonly closed: boolean;
}

interface Interval {
  readonly low: End;
  readonly high: End;
}

interface RealSet {
  /** The variable whose values they are, where an inequality names it. */
  readonly variable?: string;
  /** Intervals in order; neither empty nor touching. */
  readonly intervals: readonly Interval[];
}

/** The comparison by which two sets agree; undefined if they differ or one of them is not a set of real numbers. */
export function sameReals(algebra: Algebra, a: Node, b: Node): ScalarMethod | undefined {
  if (!saysReals(a) && !saysReals(b)) return undefined;
  const [left, right] = [realsOf(algebra, a), realsOf(algebra, b)];
  if (left === undefined || right === undefined) return undefined;
  const isOther =
    left.variable !== undefined && right.variable !== undefined && left.variable !== right.variable;
  if (isOther || left.intervals.length !== right.intervals.length) return undefined;
  let method: ScalarMethod = 'exact';
  for (const [i, { low, high }] of left.intervals.entries()) {
    const other = right.intervals[i]!;
    if (low.closed !== other.low.closed || high.closed !== other.high.closed) return undefined;
    for (const [one, two] of [[low, other.low] as const, [high, other.high] as const]) {
      const same = sameRatio(algebra, one.value, two.value);
      if (same === undefined) return undefined;
      if (same !== 'exact') method = same;
    }
  }
  return method;
}

/** Whether a tree is meant as a set of reals; `(1, 2)` alone is a pair. */
function saysReals(node: Node): boolean {
  if (node.kind === 'union' || node.kind === 'difference') return true;
  if (node.kind === 'relation') return node.operators.some((operator) => operator !== '=');
  if (node.kind === 'list') return node.items.some(saysReals);
  if (node.kind === 'symbol') return node.name === REALS;
  return (
    node.kind === 'group' &&
    node.open !== '{' &&
    node.items.length === 2 &&
    `${node.open}${node.close}` !== '()'
  );
}

/** The relation after its sides are swapped. */
export const FLIPPED: Readonly<Record<string, string>> = {
  ...{ '<': '>', '>': '<', '≤': '≥', '≥': '≤' },
  ...{ '≠': '≠', '=': '=' },
};
const REALS = '\\mathbb{R}';

function realsOf(algebra: Algebra, node: Node): RealSet | undefined {
  const intervals = intervalsOf(algebra, node);
  return intervals && { ...intervals, intervals: joined(algebra, intervals.intervals) };
}

function intervalsOf(algebra: Algebra, node: Node): RealSet | undefined {
  if (node.kind === 'symbol' && node.name === REALS) return { intervals: [between(everything(algebra))] };
  if (node.kind === 'union') return unionOf(algebra, node.parts);
  if (node.kind === 'list') return node.alternatives ? unionOf(algebra, node.items) : undefined;
  if (node.kind === 'relation') return relationSet(algebra, node);
  if (node.kind === 'difference') return difference(algebra, node.from, node.without);
  if (node.kind !== 'group') return undefined;
  const ends = node.items.map((item) => endOf(algebra, ratioOf(algebra, item)));
  if (ends.some((end) => end === undefined)) return undefined;
  if (node.open === '{') return { intervals: ends.map((end) => between([end!, end!])) };
  const [low, high] = ends;
  if (ends.length !== 2 || low!.at > high!.at) return undefined;
  return {
    intervals: [
      {
        low: { ...low!, closed: low!.closed && node.open === '[' },
        high: { ...high!, closed: high!.closed && node.close === ']' },
      },
    ],
  };
}

function unionOf(algebra: Algebra, parts: readonly Node[]): RealSet | undefined {
  const sets = parts.map((part) => intervalsOf(algebra, part));
  if (sets.some((set) => set === undefined)) return undefined;
  const variables = new Set(sets.map((set) => set!.variable));
  if (variables.size > 1) return undefined;
  const [variable] = variables;
  const intervals = sets.flatMap((set) => set!.intervals);
  return variable === undefined ? { intervals } : { variable, intervals };
}

/** A set of intervals without single points. */
function difference(algebra: Algebra, from: Node, without: Node): RealSet | undefined {
  const [all, points] = [realsOf(algebra, from), intervalsOf(algebra, without)];
  if (
    all === undefined ||
    points === undefined ||
    points.intervals.some(({ low, high }) => low.at !== high.at)
  )
    return undefined;
  let { intervals } = all;
  for (const { low: point } of points.intervals) {
    intervals = intervals.flatMap((interval) => {
      const { low, high } = interval;
      if (point.at < low.at || point.at > high.at) return [interval];
      const open = { ...point, closed: false };
      return [
        { low, high: open },
        { low: open, high },
      ];
    });
  }
  return { intervals };
}

/** `x < 3`, `-x ≥ -1`, `0 < x ≤ 1`, `x ≠ 2`, `x ∈ [0, 1]`: linear in one variable. */
function relationSet(algebra: Algebra, { sides, operators }: RelationNode): RealSet | undefined {
  if (operators.length === 1 && operators[0] === '∈') {
    const variable = ratioOf(algebra, sides[0]!);
    const set = intervalsOf(algebra, sides[1]!);
    return variable && set && { ...set, variable: algebra.key(variable) };
  }
  const pairs = operators.map((operator, i) => pairSet(algebra, sides[i]!, sides[i + 1]!, operator));
  return pairs.reduce((a, b) => intersection(algebra, a, b));
}

/** The solutions of one inequality; one with |u| is split into two. */
function pairSet(algebra: Algebra, left: Node, right: Node, operator: string): RealSet | undefined {
  if (right.kind === 'call' && right.name === 'abs' && left.kind !== 'call')
    return pairSet(algebra, right, left, FLIPPED[operator] ?? '');
  if (left.kind !== 'call' || left.name !== 'abs') return linearSet(algebra, left, right, operator);
  const [inner] = left.args;
  const opposite: Node = { kind: 'negative', of: right };
  const [above, below] = [
    linearSet(algebra, inner!, right, operator),
    linearSet(algebra, inner!, opposite, FLIPPED[operator] ?? ''),
  ];
  if (operator === '<' || operator === '≤') return intersection(algebra, above, below);
  if (above === undefined || below === undefined || operator === '≠') return undefined;
  return { ...above, intervals: joined(algebra, [...above.intervals, ...below.intervals]) };
}

/** Solves an inequality that is linear: from left - right = c·variable + rest to variable and -rest/c. */
function linearSet(algebra: Algebra, left: Node, right: Node, operator: string): RealSet | undefined {
  if (!['<', '>', '≤', '≥', '≠'].includes(operator)) return undefined;
  const [a, b] = [ratioOf(algebra, left), ratioOf(algebra, right)];
  if (a === undefined || b === undefined) return undefined;
  const { over, under } = algebra.subtract(a, b);
  const { polynomials } = algebra;
  const alone = (polynomial: Polynomial) => ({ over: polynomial, under: polynomials.one });
  const isVariable = (id: number) =>
    realValue(algebra, alone(polynomials.ofAtom(polynomials.atom(id)))) === undefined;
  const linear = [...over.values()].filter(({ powers }) => powers.some(([id]) => isVariable(id)));
  const [term] = linear;
  if (algebra.rational(alone(under)) === undefined || linear.length !== 1) return undefined;
  const [[id, exponent]] = term!.powers as unknown as [[number, number]];
  if (term!.powers.length !== 1 || exponent !== 1) return undefined;
  const rest = polynomials.ofTerms([...over.values()].filter((other) => other !== term));
  const factor = rational.negative(rational.inverse(term!.coefficient, algebra.budget));
  const bound = endOf(algebra, alone(polynomials.multiply(rest, polynomials.constant(factor))));
  if (bound === undefined) return undefined;
  const [least, greatest] = everything(algebra);
  const end = { ...bound, closed: operator === '≤' || operator === '≥' };
  const isBelow = (operator === '<' || operator === '≤') === term!.coefficient.over > 0n;
  const intervals =
    operator === '≠'
      ? [between([least, end]), between([end, greatest])]
      : [between(isBelow ? [least, end] : [end, greatest])];
  return { variable: algebra.key(alone(polynomials.ofAtom(polynomials.atom(id)))), intervals };
}

/** The intersection of two sets of one variable. */
function intersection(algebra: Algebra, a: RealSet | undefined, b: RealSet | undefined): RealSet | undefined {
  if (a === undefined || b === undefined || a.variable !== b.variable) return undefined;
  const later = (one: End, two: End) => (one.at > two.at || (one.at === two.at && !one.closed) ? one : two);
  const earlier = (one: End, two: End) => (one.at < two.at || (one.at === two.at && !one.closed) ? one : two);
  const intervals = a.intervals.flatMap((one) =>
    b.intervals.map((two) => between([later(one.low, two.low), earlier(one.high, two.high)])),
  );
  return { ...a, intervals: joined(algebra, intervals) };
}

function endOf(algebra: Algebra, value: Ratio | undefined): End | undefined {
  if (value === undefined) return undefined;
  const at = realValue(algebra, value);
  return at === undefined ? undefined : { value, at, closed: Number.isFinite(at) };
}

function everything(algebra: Algebra): readonly [End, End] {
  const infinity = algebra.value({ kind: 'symbol', name: '\\infty' });
  return [
    { value: algebra.negative(infinity), at: Number.NEGATIVE_INFINITY, closed: false },
    { value: infinity, at: Number.POSITIVE_INFINITY, closed: false },
  ];
}

function between([low, high]: readonly [End, End]): Interval {
  return { low, high };
}

/** Intervals in order, without empty ones; touching ones are joined. */
function joined(algebra: Algebra, intervals: readonly Interval[]): Interval[] {
  const kept = intervals.filter(
    ({ low, high }) => low.at < high.at || (low.at === high.at && low.closed && high.closed),
  );
  algebra.budget.spend(kept.length);
  kept.sort((a, b) => a.low.at - b.low.at || Number(b.low.closed) - Number(a.low.closed));
  const result: Interval[] = [];
  for (const interval of kept) {
    const last = result.at(-1);
    const touches =
      last !== undefined &&
      (interval.low.at < last.high.at ||
        (interval.low.at === last.high.at && (interval.low.closed || last.high.closed)));
    if (!touches) result.push(interval);
    else if (
      interval.high.at > last.high.at ||
      (interval.high.at === last.high.at && interval.high.closed && !last.high.closed)
    )
      result[result.length - 1] = { low: last.low, high: interval.high };
  }
  return result;
}
