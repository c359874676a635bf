// Python's values, as templates see them: str is a string (or Markup), int a bigint, float a number, None null, bool a boolean, list an array.
import { JinjaError, unsupported } from './errors.js';

/** A text that the filter `safe` or `escape` gave: Python's Markup. */
export class Markup {
  constructor(readonly text: string) {}
}

/** The value of a name that nothing defines. It prints nothing, and every use but a few is an error. */
export class Undefined {
  constructor(readonly what: string) {}

  get error(): JinjaError {
    return new JinjaError(`${this.what} is undefined`);
  }
}

export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** A range or a view of a dict: it has a length, and is read as often as one likes. */
export class View {
  constructor(
    readonly kind: 'range' | 'dict_keys' | 'dict_values' | 'dict_items',
    readonly items: readonly Value[],
    readonly text?: string,
  ) {}
}

/** The result of filters such as `map`: true whether or not it has elements, and empty after it was read once. */
export class Generator {
  private next = 0;

  constructor(private readonly items: readonly Value[]) {}

  rest(): readonly Value[] {
    const from = this.next;
    this.next = this.items.length;
    return this.items.slice(from);
  }

  one(): Value | undefined {
    return this.next < this.items.length ? this.items[this.next++] : undefined;
  }
}

export class Namespace {
  readonly values = new Map<string, Value>();
}

export interface Arguments {
  readonly args: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

export class Callable {
  constructor(
    readonly name: string,
    readonly call: (given: Arguments) => Value,
    /** Attributes, which the variable `loop` has. */
    readonly attributes?: (name: string) => Value | undefined,
  ) {}
}

export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | Markup
  | Undefined
  | Tuple
  | View
  | Generator
  | Namespace
  | Callable
  | Dict
  | Value[];

/** A dict in the order of insertion; 1, 1.0 and True are one key. */
export class Dict {
  private readonly entries = new Map<unknown, [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.set(key, value);
  }

  get size(): number {
    return this.entries.size;
  }

  get(key: Value): Value | undefined {
    return this.entries.get(hashed(key))?.[1];
  }

  set(key: Value, value: Value): void {
    const hash = hashed(key);
    this.entries.set(hash, [this.entries.get(hash)?.[0] ?? key, value]);
  }

  pairs(): readonly (readonly [Value, Value])[] {
    return [...this.entries.values()];
  }

  keys(): Value[] {
    return this.pairs().map(([key]) => key);
  }
}

function hashed(key: Value): unknown {
  if (typeof key === 'string' || typeof key === 'bigint' || key === null || key instanceof Undefined)
    return key;
  if (typeof key === 'boolean') return key ? 1n : 0n;
  if (typeof key === 'number') return Number.isInteger(key) ? BigInt(key) : key;
  if (key instanceof Markup) return key.text;
  if (Array.isArray(key) || key instanceof Dict) throw new JinjaError(`unhashable type: '${typeName(key)}'`);
  throw unsupported(`a ${typeName(key)} as a key of a dict`);
}

/** The name that Python has for a value's type. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'bigint') return 'int';
  if (typeof value === 'number') return 'float';
  if (typeof value === 'string') return 'str';
  if (Array.isArray(value)) return 'list';
  if (value instanceof Dict) return 'dict';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof View) return value.kind;
  if (value instanceof Callable) return 'function';
  return value.constructor.name;
}

export function isText(value: Value): value is string | Markup {
  return typeof value === 'string' || value instanceof Markup;
}

/** The text of a str, or of a Markup. */
export function textOf(value: string | Markup): string {
  return typeof value === 'string' ? value : value.text;
}

export function isNumber(value: Value): value is bigint | number | boolean {
  return typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean';
}

/** An int; a bool counts as one. */
export function isInt(value: Value): value is bigint | boolean {
  return typeof value === 'bigint' || typeof value === 'boolean';
}

export function truth(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === 'boolean') return value;
  if (typeof value === 'bigint') return value !== 0n;
  if (typeof value === 'number') return value !== 0;
  if (isText(value)) return textOf(value) !== '';
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Dict) return value.size > 0;
  if (value instanceof Tuple || value instanceof View) return value.items.length > 0;
  return true;
}

/** The characters of a text as Python counts them: code points. */
export function characters(text: string): string[] {
  return /[\ud800-\udfff]/.test(text) ? Array.from(text) : text.split('');
}

/** Python's `len`. */
export function lengthOf(value: Value): number {
  if (isText(value)) {
    const text = textOf(value);
    return /[\ud800-\udfff]/.test(text) ? Array.from(text).length : text.length;
  }
  if (Array.isArray(value)) return value.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof Tuple || value instanceof View) return value.items.length;
  if (value instanceof Undefined) return 0;
  throw new JinjaError(`object of type '${typeName(value)}' has no len()`);
}

/** The elements of whatever Python iterates over; a dict gives its keys. */
export function elements(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (isText(value)) return characters(textOf(value));
  if (value instanceof Dict) return value.keys();
  if (value instanceof Tuple || value instanceof View) return value.items;
  if (value instanceof Generator) return value.rest();
  if (value instanceof Undefined) return [];
  throw new JinjaError(`'${typeName(value)}' object is not iterable`);
}
