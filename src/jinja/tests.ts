// Jinja's tests, the words after `is`.
import { bind, needInt } from './arguments.js';
import { arithmetic, compare, contains, equal } from './operators.js';
import {
  type Arguments,
  Callable,
  Dict,
  Generator,
  isNumber,
  isText,
  Tuple,
  Undefined,
  type Value,
  View,
} from './values.js';

export type Test = (value: Value, given: Arguments) => boolean;

function plain(test: (value: Value) => boolean): Test {
  return (value, given) => {
    bind('a test', given, []);
    return test(value);
  };
}

function against(test: (value: Value, other: Value) => boolean): Test {
  return (value, given) => test(value, bind('a test', given, ['other'], 1)[0] as Value);
}

const remainder = (value: Value, by: bigint) => arithmetic('%', value, by);
const eq = against(equal);
const ne = against((a, b) => !equal(a, b));
const lt = against((a, b) => compare(a, b, '<') < 0);
const le = against((a, b) => compare(a, b, '<=') <= 0);
const gt = against((a, b) => compare(a, b, '>') > 0);
const ge = against((a, b) => compare(a, b, '>=') >= 0);

function hasLengthAndItems(value: Value): boolean {
  return (
    isText(value) ||
    Array.isArray(value) ||
    value instanceof Tuple ||
    value instanceof Dict ||
    value instanceof Undefined ||
    (value instanceof View && value.kind === 'range')
  );
}

export const TESTS: Readonly<Record<string, Test>> = {
  '!=': ne,
  '<': lt,
  '<=': le,
  '==': eq,
  '>': gt,
  '>=': ge,
  boolean: plain((value) => typeof value === 'boolean'),
  callable: plain((value) => value instanceof Callable || value instanceof Undefined),
  defined: plain((value) => !(value instanceof Undefined)),
  divisibleby: against((value, by) => equal(remainder(value, BigInt(needInt(by, 'divisibleby'))), 0n)),
  eq,
  equalto: eq,
  even: plain((value) => equal(remainder(value, 2n), 0n)),
  false: plain((value) => value === false),
  float: plain((value) => typeof value === 'number'),
  ge,
  greaterthan: gt,
  gt,
  in: against((value, container) => contains(container, value)),
  integer: plain((value) => typeof value === 'bigint'),
  iterable: plain((value) => hasLengthAndItems(value) || value instanceof View || value instanceof Generator),
  le,
  lessthan: lt,
  lt,
  mapping: plain((value) => value instanceof Dict),
  ne,
  none: plain((value) => value === null),
  number: plain(isNumber),
  odd: plain((value) => equal(remainder(value, 2n), 1n)),
  sequence: plain(hasLengthAndItems),
  string: plain(isText),
  true: plain((value) => value === true),
  undefined: plain((value) => value instanceof Undefined),
};
