// Sums and products over a range of whole numbers, written out: `\sum_{i=1}^{3} i` is 1 + 2 + 3.
import type { StepBudget } from './budget.js';
import * as rational from './rational.js';
import type { Node } from './syntax.js';

/** A longer one stays as it is written. */
const MAX_TERMS = 1000;

/**
 * The terms of a sum or the factors of a product, with each number in place of the variable. Undefined where the range
 * is not one of given whole numbers, and where the body holds another operator, whose limits may name the variable.
 *
 * @param limits as written, `_i=1` and `^3`
 */
export function finiteSeries(
  name: string,
  limits: readonly string[],
  body: Node,
  budget: StepBudget,
): Node | undefined {
  if (name !== 'sum' && name !== 'prod') return undefined;
  const [, variable, first] =
    limits.map((each) => /^_([a-zA-Z])=(-?\d{1,6})$/.exec(each)).find(Boolean) ?? [];
  const [, last] = limits.map((each) => /^\^(-?\d{1,6})$/.exec(each)).find(Boolean) ?? [];
  if (variable === undefined || first === undefined || last === undefined || limits.length !== 2)
    return undefined;
  const count = Number(last) - Number(first) + 1;
  if (count > MAX_TERMS || holdsOperator(body)) return undefined;
  if (count < 1) return number(name === 'sum' ? 0 : 1);
  const terms = Array.from({ length: count }, (_, i) =>
    replaced(body, variable, number(Number(first) + i), budget),
  );
  return name === 'sum' ? { kind: 'sum', terms } : { kind: 'product', factors: terms };
}

const number = (value: number): Node => ({ kind: 'number', value: rational.whole(BigInt(value)), text: '' });

/** Whether a tree holds a sum, an integral or the like that was not written out. */
function holdsOperator(node: unknown): boolean {
  if (Array.isArray(node)) return node.some(holdsOperator);
  if (typeof node !== 'object' || node === null) return false;
  const { kind, name } = node as { kind?: unknown; name?: unknown };
  return (kind === 'call' && String(name).startsWith('\\')) || Object.values(node).some(holdsOperator);
}

/** The tree with `by` in the place of a variable. */
function replaced<T>(node: T, variable: string, by: Node, budget: StepBudget): T {
  budget.spend();
  if (Array.isArray(node)) return node.map((each) => replaced(each, variable, by, budget)) as T;
  if (typeof node !== 'object' || node === null) return node;
  const { kind, name } = node as { kind?: unknown; name?: unknown };
  if (kind === 'symbol' && name === variable) return by as T;
  if (kind === 'number') return node;
  return Object.fromEntries(
    Object.entries(node).map(([key, value]) => [key, replaced(value, variable, by, budget)]),
  ) as T;
}
