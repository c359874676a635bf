// Python's str() and repr().
import { unsupported } from './errors.js';
import { Dict, isText, Markup, Tuple, textOf, typeName, Undefined, type Value, View } from './values.js';

/** Python's `str(value)`. */
export function str(value: Value): string {
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return '';
  return repr(value);
}

/** Python's `repr(value)`. */
export function repr(value: Value): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return floatText(value);
  if (isText(value))
    return value instanceof Markup ? `Markup(${quoted(textOf(value))})` : quoted(textOf(value));
  if (Array.isArray(value)) return `[${value.map(repr).join(', ')}]`;
  if (value instanceof Tuple)
    return value.items.length === 1
      ? `(${repr(value.items[0] as Value)},)`
      : `(${value.items.map(repr).join(', ')})`;
  if (value instanceof Dict)
    return `{${value
      .pairs()
      .map(([key, item]) => `${repr(key)}: ${repr(item)}`)
      .join(', ')}}`;
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof View) return value.text ?? `${value.kind}([${value.items.map(repr).join(', ')}])`;
  throw unsupported(`the text of a ${typeName(value)}`);
}

/** Python's text of a float: the shortest digits that give the same number, always with a point or an exponent. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const [mantissa = '', power = '0'] = Math.abs(value).toExponential().split('e');
  const digits = mantissa.replace('.', '');
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const point = digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : digits;
    return `${sign}${point}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.padEnd(exponent + 1, '0');
  return `${sign}${whole.slice(0, exponent + 1)}.${whole.slice(exponent + 1) || '0'}`;
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const written = text.replace(/[\\\p{C}\p{Z}'"]/gu, (character) => {
    if (character === ' ') return character;
    if (character === "'" || character === '"') return character === quote ? `\\${character}` : character;
    return ESCAPES[character] ?? hexadecimal(character.codePointAt(0) as number);
  });
  return quote + written + quote;
}

function hexadecimal(code: number): string {
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, '0')}` : `\\U${digits.padStart(8, '0')}`;
}
