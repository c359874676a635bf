// Python's json.dumps.
import { JinjaError } from './errors.js';
import { compare } from './operators.js';
import { floatText } from './print.js';
import { Dict, isText, Tuple, textOf, typeName, type Value } from './values.js';

export interface JsonLayout {
  readonly ensureAscii: boolean;
  /** A text that every level is indented by; null writes all on one line. */
  readonly indent: string | null;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortKeys: boolean;
}

/** @throws JinjaError for a value that JSON does not have */
export function json(value: Value, layout: JsonLayout, level = 0): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return jsonFloat(value);
  if (isText(value)) return jsonText(textOf(value), layout.ensureAscii);
  const nested = (item: Value) => json(item, layout, level + 1);
  if (Array.isArray(value) || value instanceof Tuple)
    return enclosed('[', (value instanceof Tuple ? value.items : value).map(nested), ']', layout, level);
  if (!(value instanceof Dict))
    throw new JinjaError(`Object of type ${typeName(value)} is not JSON serializable`);
  const pairs = layout.sortKeys ? value.pairs().toSorted(([a], [b]) => compare(a, b, '<')) : value.pairs();
  const entries = pairs.map(
    ([key, item]) => `${jsonText(keyText(key), layout.ensureAscii)}${layout.keySeparator}${nested(item)}`,
  );
  return enclosed('{', entries, '}', layout, level);
}

function enclosed(
  open: string,
  items: readonly string[],
  close: string,
  { indent, itemSeparator }: JsonLayout,
  level: number,
): string {
  if (items.length === 0) return open + close;
  if (indent === null) return open + items.join(itemSeparator) + close;
  const line = `\n${indent.repeat(level + 1)}`;
  return `${open}${line}${items.join(itemSeparator + line)}\n${indent.repeat(level)}${close}`;
}

function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity';
  return floatText(value);
}

function keyText(key: Value): string {
  if (isText(key)) return textOf(key);
  if (key === null) return 'null';
  if (typeof key === 'boolean' || typeof key === 'bigint') return String(key);
  if (typeof key === 'number') return jsonFloat(key);
  throw new JinjaError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\b': '\\b',
  '\f': '\\f',
};

function jsonText(text: string, ensureAscii: boolean): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them
  const special = ensureAscii ? /["\\]|[^\x20-\x7e]/g : /["\\\x00-\x1f]/g;
  const escaped = text.replace(
    special,
    (unit) => ESCAPES[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return `"${escaped}"`;
}
