// JSON whose numbers keep their digits and their kind: 2.0 is not 2, and 12345678901234567890 is not 12345678901234567000.

/**
 * Texts of numbers that JavaScript would write otherwise, by key, in the object or list that has them. Spreading copies
 * it.
 */
const WRITTEN = Symbol('numbers as written');

interface Container {
  [WRITTEN]?: Record<string, string>;
}

const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/g;

/** Whether a text may hold a number that JavaScript would write otherwise. */
const MAY_DIFFER = /\d{16}|\d\.\d*0(?!\d)|\d\.\d{15}|\d[eE][-+\d]|-0/;

/**
 * `JSON.parse` that keeps numbers: whole ones beyond 2^53 become bigints, and the text of any other number that
 * JavaScript would write differently is kept for `exactText`.
 *
 * @throws SyntaxError as `JSON.parse` does, and for a number that is no whole one and beyond doubles, such as 1e400
 */
export function parseExact(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return MAY_DIFFER.test(text) && MAY_DIFFER.test(text.replace(STRING, '""'))
    ? new Reader(text).value().value
    : value;
}

/** A key that stands twice in an object of `text`, of which `value`, as read, has the last alone; undefined where there is none. */
export function keyTwice(text: string, value: unknown): string | undefined {
  const read = keysOf(value);
  let colons = 0;
  for (let at = text.indexOf('":'); at >= 0; at = text.indexOf('":', at + 2)) colons++;
  // Texts may have quotes before colons too.
  if ((colons === read && !SPACED.test(text)) || text.replace(STRING, '""').split(':').length - 1 === read)
    return undefined;
  const open: (Set<string> | undefined)[] = [];
  let before = '';
  for (const [token] of text.matchAll(KEY_OR_BRACKET)) {
    if (token === '{' || token === '[') open.push(token === '{' ? new Set() : undefined);
    else if (token === '}' || token === ']') open.pop();
    else if (token === ':') {
      const key = JSON.parse(before) as string;
      if (open.at(-1)?.has(key)) return key;
      open.at(-1)?.add(key);
    }
    before = token;
  }
  return undefined;
}

/** Space between a key and its colon. */
const SPACED = /"\s+:/;

const KEY_OR_BRACKET = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:]/g;

/** Number of keys in all objects of a value. */
function keysOf(value: unknown): number {
  let count = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next !== 'object' || next === null) continue;
    if (Array.isArray(next)) {
      for (const each of next) if (typeof each === 'object') left.push(each);
      continue;
    }
    for (const key in next) {
      count++;
      const each = (next as Record<string, unknown>)[key];
      if (typeof each === 'object') left.push(each);
    }
  }
  return count;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]|[^\s,:{}[\]"]+/g;

interface Read {
  readonly value: unknown;
  /** The source text of a number that JavaScript writes otherwise. */
  readonly written?: string;
}

/** Reads a text that is JSON. */
class Reader {
  private readonly tokens: Iterator<RegExpMatchArray>;
  private token: string;

  constructor(text: string) {
    this.tokens = text.matchAll(TOKEN);
    this.token = this.next();
  }

  private next(): string {
    return (this.tokens.next().value as RegExpMatchArray | undefined)?.[0] ?? '';
  }

  /** The value that begins at the current token; goes behind it. */
  value(): Read {
    const { token } = this;
    this.token = this.next();
    if (token === '[') return { value: this.list() };
    if (token === '{') return { value: this.object() };
    return /^[-\d]/.test(token) ? number(token) : { value: JSON.parse(token) };
  }

  private list(): unknown[] {
    const all: unknown[] & Container = [];
    while (this.token !== ']') {
      const { value, written } = this.value();
      if (written !== undefined) keep(all, String(all.length), written);
      all.push(value);
    }
    this.token = this.next();
    return all;
  }

  private object(): object {
    const all: Record<string, unknown> & Container = {};
    while (this.token !== '}') {
      const key = JSON.parse(this.token) as string;
      this.token = this.next();
      const { value, written } = this.value();
      delete all[WRITTEN]?.[key];
      if (written !== undefined) keep(all, key, written);
      put(all, key, value);
    }
    this.token = this.next();
    return all;
  }
}

function number(text: string): Read {
  const value = Number(text);
  if (/^-?\d+$/.test(text)) {
    if (Number.isSafeInteger(value)) return { value: value === 0 ? 0 : value };
    return { value: BigInt(text) };
  }
  if (!Number.isFinite(value))
    throw new SyntaxError(`the number ${text.slice(0, 40)} is too large for a double, which ends at 1.8e308`);
  return String(value) === text ? { value } : { value, written: text };
}

function put(container: object, key: string, value: unknown): void {
  // An assignment to __proto__ would set the prototype.
  if (key === '__proto__')
    Object.defineProperty(container, key, { value, enumerable: true, writable: true, configurable: true });
  else (container as Record<string, unknown>)[key] = value;
}

function keep(container: Container, key: string, text: string): void {
  if (container[WRITTEN] === undefined)
    Object.defineProperty(container, WRITTEN, {
      value: Object.create(null),
      // A list that was spread is another list.
      enumerable: !Array.isArray(container),
    });
  (container[WRITTEN] as Record<string, string>)[key] = text;
}

/** The original text of the number at `key`, where JavaScript writes it differently and nobody has changed it. */
export function writtenAt(container: object, key: string | number): string | undefined {
  const text = (container as Container)[WRITTEN]?.[key];
  return text !== undefined && Number(text) === (container as Record<string, unknown>)[key]
    ? text
    : undefined;
}

/**
 * The number at `key` as text: as JavaScript writes it where that is the same number (`142` for 142.0), else as it was written.
 *
 * @returns undefined where there is no number, or none that is finite
 */
export function numberText(container: object, key: string | number): string | undefined {
  const value = (container as Record<string, unknown>)[key];
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined;
  const text = writtenAt(container, key);
  return text !== undefined && digitsOf(text) > EXACT_DIGITS ? text : String(value);
}

/** Every decimal of so many digits has a double of its own. */
const EXACT_DIGITS = 15;

/** Digits of a number without zeros at either end. */
function digitsOf(text: string): number {
  const digits = (text.split(/e/i)[0] as string).replace(/[-+.]/g, '');
  return digits.replace(/^0+/, '').replace(/0+$/, '').length;
}

/** An object of these entries, each number as it was written in `from` under the name that `source` gives for its key. */
export function picked(
  from: object,
  entries: readonly (readonly [key: string, source: string])[],
): Record<string, unknown> {
  const all: Record<string, unknown> & Container = {};
  for (const [key, source] of entries) {
    put(all, key, (from as Record<string, unknown>)[source]);
    const text = writtenAt(from, source);
    if (text !== undefined) keep(all, key, text);
  }
  return all;
}

/** Whether the number at `key` was written as a float, such as 2.0 or 1e5. */
export function isWrittenFloat(container: object, key: string | number): boolean {
  return /[.eE]/.test(writtenAt(container, key) ?? '');
}

/** Notes that a whole number at `key` is a float, as Parquet's columns and Python's texts say. JSON has no name for infinity; 1e999 is read as that. */
export function noteFloat(container: object, key: string | number, value: unknown): void {
  if (value === Infinity) noteText(container, key, '1e999');
  if (value === -Infinity) noteText(container, key, '-1e999');
  if (typeof value !== 'number' || !Number.isInteger(value)) return;
  const text = Object.is(value, -0) ? '-0' : String(value);
  keep(container as Container, String(key), text.includes('e') ? text : `${text}.0`);
}

/** Notes how the number at `key` is written, such as 12345678901234567890.123. */
export function noteText(container: object, key: string | number, text: string): void {
  if (String((container as Record<string, unknown>)[key]) !== text)
    keep(container as Container, String(key), text);
}

/** `JSON.stringify` for a value of `parseExact`, or one made of it by spreading: numbers are as they were written. */
export function exactText(value: unknown): string {
  return isPlain(value) ? JSON.stringify(value) : written(value);
}

/** Whether `JSON.stringify` writes all of it as it was. */
function isPlain(value: unknown): boolean {
  if (typeof value === 'bigint') return false;
  if (typeof value !== 'object' || value === null) return true;
  if ((value as Container)[WRITTEN] !== undefined) return false;
  return Array.isArray(value) ? value.every(isPlain) : Object.values(value).every(isPlain);
}

function written(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  if (isPlain(value)) return JSON.stringify(value) ?? 'null';
  const all = value as object;
  if (Array.isArray(all)) return `[${all.map((each, i) => writtenAt(all, i) ?? written(each)).join(',')}]`;
  const entries = Object.entries(all).filter(([, each]) => each !== undefined);
  return `{${entries.map(([key, each]) => `${JSON.stringify(key)}:${writtenAt(all, key) ?? written(each)}`).join(',')}}`;
}
