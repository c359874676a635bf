// Python's operators.
import { power } from '../native/elementary.js';
import { JinjaError, unsupported } from './errors.js';
import { str } from './print.js';
import {
  characters,
  Dict,
  elements,
  Generator,
  isInt,
  isNumber,
  isText,
  Markup,
  Namespace,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
  View,
} from './values.js';

/** Longer than any context. */
export const MAX_TEXT = 1 << 26;
const MAX_ITEMS = 1_000_000;
/** Digits of an integer that a template may compute. */
const MAX_BITS = 10_000;

/** @throws JinjaError for a text that is longer than any context */
export function bounded(text: string): string {
  if (text.length > MAX_TEXT) throw new JinjaError(`it writes ${text.length} characters`);
  return text;
}

/** The result of Python's `==`. */
export function equal(a: Value, b: Value): boolean {
  // biome-ignore lint/suspicious/noDoubleEquals: it compares a bigint with a number by value
  if (isNumber(a) && isNumber(b)) return number(a) == number(b);
  if (isText(a) && isText(b)) return textOf(a) === textOf(b);
  if (Array.isArray(a) && Array.isArray(b)) return equalItems(a, b);
  if (a instanceof Tuple && b instanceof Tuple) return equalItems(a.items, b.items);
  if (a instanceof View && b instanceof View) {
    if (a.kind === b.kind && a.kind === 'range') return equalItems(a.items, b.items);
    throw unsupported('comparing views of dicts');
  }
  if (a instanceof Dict && b instanceof Dict)
    return (
      a.size === b.size &&
      a.pairs().every(([key, value]) => {
        const other = b.get(key);
        return other !== undefined && equal(value, other);
      })
    );
  if (a instanceof Undefined && b instanceof Undefined) return true;
  return a === b;
}

function equalItems(a: readonly Value[], b: readonly Value[]): boolean {
  return a.length === b.length && a.every((item, i) => equal(item, b[i] as Value));
}

function number(value: bigint | number | boolean): bigint | number {
  return typeof value === 'boolean' ? (value ? 1n : 0n) : value;
}

/**
 * A negative number where `a` comes before `b`, as Python orders numbers, texts, lists and tuples.
 *
 * @param operator for the message
 */
export function compare(a: Value, b: Value, operator: string): number {
  if (isNumber(a) && isNumber(b)) {
    const [x, y] = [number(a), number(b)];
    return x < y ? -1 : x > y ? 1 : x >= y ? 0 : Number.NaN;
  }
  if (isText(a) && isText(b)) return compareText(textOf(a), textOf(b));
  const [x, y] = [ordered(a), ordered(b)];
  if (x !== undefined && y !== undefined && a instanceof Tuple === b instanceof Tuple) {
    for (const [i, item] of x.entries()) {
      const other = y[i];
      if (other === undefined) return 1;
      if (!equal(item, other)) return compare(item, other, operator);
    }
    return x.length - y.length;
  }
  for (const value of [a, b]) if (value instanceof Undefined) throw value.error;
  throw new JinjaError(
    `'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`,
  );
}

function ordered(value: Value): readonly Value[] | undefined {
  return value instanceof Tuple ? value.items : Array.isArray(value) ? value : undefined;
}

/** Compares by code points, in which UTF-16 differs beyond U+FFFF. */
function compareText(a: string, b: string): number {
  if (a === b) return 0;
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  if (i >= a.length || i >= b.length) return a.length - b.length;
  const rank = (unit: number) => (unit >= 0xd800 && unit < 0xe000 ? unit + 0x10000 : unit);
  return rank(a.charCodeAt(i)) - rank(b.charCodeAt(i));
}

/** Whether `item in container` holds. */
export function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (isText(item)) return textOf(container).includes(textOf(item));
    throw new JinjaError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (container instanceof Dict) return container.get(item) !== undefined;
  if (container instanceof Generator) throw unsupported("'in' a generator");
  if (isNumber(container) || container === null || container instanceof Namespace)
    throw new JinjaError(`argument of type '${typeName(container)}' is not iterable`);
  return elements(container).some((each) => equal(each, item));
}

/** The value of `a operator b` for one of + - * / // % **. */
export function arithmetic(operator: string, a: Value, b: Value): Value {
  for (const value of [a, b]) if (value instanceof Undefined) throw value.error;
  if (isNumber(a) && isNumber(b))
    return isInt(a) && isInt(b)
      ? integers(operator, BigInt(a), BigInt(b))
      : floats(operator, Number(a), Number(b));
  if (operator === '+') {
    if (a instanceof Markup || b instanceof Markup) {
      if (isText(a) && isText(b)) return new Markup(bounded(escaped(a) + escaped(b)));
    } else if (isText(a) && isText(b)) return bounded(a + b);
    if (Array.isArray(a) && Array.isArray(b)) return boundedItems([...a, ...b]);
    if (a instanceof Tuple && b instanceof Tuple) return new Tuple([...a.items, ...b.items]);
  }
  if (operator === '*') {
    if (isInt(b)) return repeated(a, Number(b));
    if (isInt(a)) return repeated(b, Number(a));
  }
  if (operator === '%' && isText(a)) throw unsupported("'%' on a text");
  throw new JinjaError(`unsupported operand type(s) for ${operator}: '${typeName(a)}' and '${typeName(b)}'`);
}

function boundedItems(items: Value[]): Value[] {
  if (items.length > MAX_ITEMS) throw new JinjaError(`a list has more than ${MAX_ITEMS} elements`);
  return items;
}

function repeated(value: Value, times: number): Value {
  const count = Math.max(0, times);
  if (isText(value)) {
    const text = textOf(value);
    if (text.length * count > MAX_TEXT) throw new JinjaError(`it writes ${text.length * count} characters`);
    return value instanceof Markup ? new Markup(text.repeat(count)) : text.repeat(count);
  }
  const items = ordered(value);
  if (items === undefined) throw new JinjaError(`can't multiply '${typeName(value)}' by an int`);
  if (items.length * count > MAX_ITEMS) throw new JinjaError(`a list has more than ${MAX_ITEMS} elements`);
  const all = Array.from({ length: count }, () => items).flat();
  return value instanceof Tuple ? new Tuple(all) : all;
}

const SAFE = BigInt(Number.MAX_SAFE_INTEGER);

function integers(operator: string, a: bigint, b: bigint): Value {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return sized(a * b);
    case '**':
      if (b < 0n) return floats('**', Number(a), Number(b));
      if (BigInt(a.toString(2).length) * b > MAX_BITS) throw new JinjaError('a power is too large');
      return a ** b;
  }
  if (b === 0n) throw new JinjaError('division by zero');
  if (operator === '/') {
    if (a > SAFE || a < -SAFE || b > SAFE || b < -SAFE) throw unsupported('division beyond 2^53');
    return Number(a) / Number(b);
  }
  const rest = a % b;
  const isBelow = rest !== 0n && rest < 0n !== b < 0n;
  return operator === '//' ? a / b - (isBelow ? 1n : 0n) : isBelow ? rest + b : rest;
}

function sized(value: bigint): bigint {
  if (value > SAFE && value.toString(16).length * 4 > MAX_BITS)
    throw new JinjaError('a product is too large');
  return value;
}

function floats(operator: string, a: number, b: number): number {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '**':
      if (a === 0 && b < 0) throw new JinjaError('zero to a negative power');
      if (a < 0 && !Number.isInteger(b)) throw unsupported('a root of a negative number');
      return power(a, b);
  }
  if (b === 0) throw new JinjaError('division by zero');
  if (operator === '/') return a / b;
  // CPython's rule: the remainder has the divisor's sign, and the quotient follows from it.
  let rest = a % b;
  let quotient = (a - rest) / b;
  if (rest !== 0 && rest < 0 !== b < 0) {
    rest += b;
    quotient -= 1;
  }
  if (operator === '%') return rest === 0 ? (b < 0 ? -0 : 0) : rest;
  if (quotient === 0) return a / b < 0 ? -0 : 0;
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

const HTML: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  "'": '&#39;',
  '"': '&#34;',
};

/**
 * The text of a value: a Markup as it is, anything else with HTML's special characters escaped, so that it can be
 * joined to a safe text.
 */
export function escaped(value: Value): string {
  if (value instanceof Markup) return value.text;
  return str(value).replace(/[&<>'"]/g, (mark) => HTML[mark] as string);
}

/** `a ~ b ~ c`: the texts of all, a safe one as it is. */
export function concatenated(values: readonly Value[]): string {
  return bounded(values.map(str).join(''));
}

/** `value[start:stop:step]`. */
export function sliced(value: Value, [start, stop, step]: readonly (Value | undefined)[]): Value {
  if (value instanceof Undefined) throw value.error;
  const items = isText(value) ? characters(textOf(value)) : (ordered(value) ?? rangeOf(value));
  const by = integer(step) ?? 1;
  if (by === 0) throw new JinjaError('slice step cannot be zero');
  const clamp = (at: number | undefined, otherwise: number) => {
    if (at === undefined) return otherwise;
    const index = at < 0 ? at + items.length : at;
    return by > 0
      ? Math.min(Math.max(index, 0), items.length)
      : Math.min(Math.max(index, -1), items.length - 1);
  };
  const from = clamp(integer(start), by > 0 ? 0 : items.length - 1);
  const to = clamp(integer(stop), by > 0 ? items.length : -1);
  const taken: Value[] = [];
  for (let i = from; by > 0 ? i < to : i > to; i += by) taken.push(items[i] as Value);
  if (isText(value)) return value instanceof Markup ? new Markup(taken.join('')) : taken.join('');
  return value instanceof Tuple ? new Tuple(taken) : taken;
}

function rangeOf(value: Value): readonly Value[] {
  if (value instanceof View && value.kind === 'range') throw unsupported('a slice of a range');
  throw new JinjaError(`'${typeName(value)}' object is not subscriptable`);
}

function integer(value: Value | undefined): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (isInt(value)) return Number(value);
  throw new JinjaError('slice indices must be integers or None');
}
