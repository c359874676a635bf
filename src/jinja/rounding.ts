// Python's int(), float() and round().
import { JinjaError } from './errors.js';
import { isInt, isText, textOf, Undefined, type Value } from './values.js';
import { withoutLeft, withoutRight } from './white-space.js';

const INTEGER = /^[-+]?\d+(?:_\d+)*$/;
const FLOAT = /^[-+]?(?:(?:\d+(?:_\d+)*)?\.?(?:\d+(?:_\d+)*)?(?:e[-+]?\d+(?:_\d+)*)?|inf(?:inity)?|nan)$/i;

/** `float(value)`, or undefined where Python raises an error that the filter catches. */
export function asFloat(value: Value): number | undefined {
  if (value instanceof Undefined) throw value.error;
  if (isInt(value)) return Number(value);
  if (typeof value === 'number') return value;
  if (!isText(value)) return undefined;
  const text = withoutRight(withoutLeft(textOf(value)));
  if (!FLOAT.test(text) || !/\d|inf|nan/i.test(text) || /^[-+]?\.?e/i.test(text)) return undefined;
  if (/nan/i.test(text)) return Number.NaN;
  if (/inf/i.test(text)) return text.startsWith('-') ? -Infinity : Infinity;
  return Number(text.replaceAll('_', ''));
}

/** `int(value)`, with Jinja's detour over float for texts such as '42.23'. */
export function asInt(value: Value): bigint | undefined {
  if (isInt(value)) return BigInt(value);
  if (isText(value)) {
    const text = withoutRight(withoutLeft(textOf(value)));
    if (INTEGER.test(text)) {
      if (text.length > 4300) return undefined;
      const digits = text.replace(/^\+/, '').replaceAll('_', '');
      return digits.startsWith('-') ? -BigInt(digits.slice(1)) : BigInt(digits);
    }
  }
  const float = asFloat(value);
  if (float === undefined || Number.isNaN(float)) return undefined;
  if (Number.isFinite(float)) return BigInt(Math.trunc(float));
  if (typeof value === 'number') throw new JinjaError('cannot convert float infinity to integer');
  return undefined;
}

/** Jinja's filter `round`. */
export function rounded(value: bigint | number | boolean, places: number, how: string): Value {
  if (how === 'common') {
    if (isInt(value)) {
      if (places >= 0) return BigInt(value);
      throw new JinjaError('round of an int to tens is not supported here');
    }
    return nearest(value, places);
  }
  if (how !== 'ceil' && how !== 'floor') throw new JinjaError('method must be common, ceil or floor');
  // Python's ints have no end: 10 ** -1 is a float, 10 ** 2 an int.
  if (places < 0 || places > 15) throw new JinjaError(`round to ${places} places is not supported here`);
  const scaled = Number(value) * Number(`1e${places}`);
  return (how === 'ceil' ? Math.ceil(scaled) : Math.floor(scaled)) / Number(`1e${places}`);
}

/** The float nearest to the exact decimal value rounded half to even, as CPython's round(). */
function nearest(value: number, places: number): number {
  if (!Number.isFinite(value)) return value;
  if (places < 0 || places > 100) throw new JinjaError(`round to ${places} places is not supported here`);
  if (Math.abs(value) >= 2 ** 52) return value;
  // toFixed rounds the exact value, but an exact half away from zero.
  const text = value.toFixed(places);
  const exact = Math.abs(value).toFixed(Math.min(100, places + 60));
  const isHalf = /^50*$/.test(exact.slice(exact.indexOf('.') + 1 + places));
  if (!isHalf) return Number(text);
  const up = BigInt(text.replace(/[-.]/g, ''));
  const even = up % 2n === 0n ? up : up - 1n;
  const digits = even.toString().padStart(places + 1, '0');
  const point = digits.length - places;
  return (
    (value < 0 ? -1 : 1) * Number(places === 0 ? digits : `${digits.slice(0, point)}.${digits.slice(point)}`)
  );
}
