import { isWrittenFloat } from '../files/exact-json.js';
import { JinjaError } from './errors.js';
import { Dict, type Value } from './values.js';

/** From here on JavaScript writes numbers with an exponent, so that JSON has a float where nothing else is noted. */
const EXPONENT_FROM = 1e21;

/**
 * Python's value for one of JSON: a whole number is an int unless its row wrote it as a float.
 *
 * @throws JinjaError for a function or a symbol
 */
export function fromPlain(value: unknown, isFloat = false): Value {
  if (value === null || value === undefined) return null;
  switch (typeof value) {
    case 'boolean':
    case 'string':
    case 'bigint':
      return value;
    case 'number':
      return Number.isInteger(value) && Math.abs(value) < EXPONENT_FROM && !isFloat ? BigInt(value) : value;
    case 'object':
      break;
    default:
      throw new JinjaError(`a ${typeof value} is no value for a template`);
  }
  if (Array.isArray(value)) return value.map((each, i) => fromPlain(each, isWrittenFloat(value, i)));
  return new Dict(
    Object.entries(value)
      .filter(([, each]) => each !== undefined)
      .map(([key, each]) => [key, fromPlain(each, isWrittenFloat(value, key))] as const),
  );
}
