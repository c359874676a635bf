// Python's int() and float().
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
