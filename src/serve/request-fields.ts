/** The fields of a request's JSON, read by type. Every field is used or refused, never ignored. */
import { nearestName } from '../native/nearest.js';
import { clipped, shown } from '../native/shown.js';
import { fieldError, RequestError } from './errors.js';

/** A field whose value is null counts as absent, since clients send null for absent fields. */
export class RequestFields {
  private readonly read = new Set<string>();
  private readonly object: Readonly<Record<string, unknown>>;

  /** @param prefix path of the object inside the request, such as `messages[0].` */
  constructor(
    value: unknown,
    private readonly prefix = '',
  ) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      const what = prefix === '' ? 'the request' : prefix.slice(0, -1);
      throw new RequestError(400, `${what}: expected an object, found ${shown(value)}`);
    }
    this.object = value as Readonly<Record<string, unknown>>;
  }

  value(name: string): unknown {
    this.read.add(name);
    return Object.hasOwn(this.object, name) ? (this.object[name] ?? undefined) : undefined;
  }

  has(name: string): boolean {
    return this.value(name) !== undefined;
  }

  /** A whole number from `min` to `max`. */
  integer(name: string, min: number, max = Number.MAX_SAFE_INTEGER): number | undefined {
    const value = this.value(name);
    if (value === undefined || (Number.isSafeInteger(value) && inside(value as number, min, max)))
      return value as number | undefined;
    const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
    return this.fail(name, `a whole number ${range}`);
  }

  number(name: string, min: number, max: number): number | undefined {
    const value = this.value(name);
    if (value === undefined || (typeof value === 'number' && inside(value, min, max))) return value;
    return this.fail(name, `a number from ${min} to ${max}`);
  }

  flag(name: string): boolean | undefined {
    const value = this.value(name);
    if (value === undefined || typeof value === 'boolean') return value;
    return this.fail(name, 'true or false');
  }

  text(name: string): string | undefined {
    const value = this.value(name);
    if (value === undefined || typeof value === 'string') return value;
    return this.fail(name, 'a text');
  }

  requiredText(name: string): string {
    return this.text(name) ?? this.fail(name, 'a text');
  }

  /** @param expected in words, for the refusal */
  list<T>(
    name: string,
    is: (item: unknown) => item is T,
    expected: string,
    max: number,
  ): readonly T[] | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value) || !value.every(is)) return this.fail(name, `a list of ${expected}`);
    if (value.length > max) this.fail(name, `a list of at most ${max}`, `${value.length}`);
    return value;
  }

  section(name: string): RequestFields | undefined {
    const value = this.value(name);
    return value === undefined ? undefined : this.inner(value, name);
  }

  /** The fields of an object inside this one. */
  inner(value: unknown, path: string): RequestFields {
    return new RequestFields(value, `${this.prefix}${path}.`);
  }

  /** Accepts a field that is not implemented if its value switches nothing on: nothing, an empty list, or one of `values`. */
  neutral(name: string, ...values: readonly unknown[]): void {
    const value = this.value(name);
    if (value === undefined || values.includes(value) || (Array.isArray(value) && value.length === 0)) return;
    const expected =
      values.length === 0
        ? 'no value'
        : [...new Set(values.map((each) => JSON.stringify(each)))].join(' or ');
    this.fail(name, `${expected}, as this server does not implement it`);
  }

  /** Accepts fields that do not change the response. */
  ignore(...names: readonly string[]): void {
    for (const name of names) this.read.add(name);
  }

  /** @throws RequestError for a field that nothing has read */
  end(): void {
    const unknown = Object.keys(this.object).find(
      (name) => !this.read.has(name) && (this.object[name] ?? undefined) !== undefined,
    );
    if (unknown === undefined) return;
    const nearest = nearestName(clipped(unknown), [...this.read]);
    const hint = nearest === undefined ? '; leave it out' : `; did you mean ${nearest}?`;
    this.refuse(clipped(unknown), `there is no such field${hint}`);
  }

  fail(name: string, expected: string, found = shown(this.object[name])): never {
    // A field that is missing may stand there misspelt.
    const misspelt = Object.keys(this.object).find(
      (key) => this.object[name] === undefined && !this.read.has(key) && nearestName(clipped(key), [name]),
    );
    if (misspelt !== undefined)
      this.refuse(clipped(misspelt), `there is no such field; did you mean ${name}?`);
    return this.refuse(name, `expected ${expected}, found ${found}`);
  }

  refuse(name: string, reason: string): never {
    throw fieldError(`${this.prefix}${name}`, reason);
  }
}

export const isText = (item: unknown): item is string => typeof item === 'string';

export const isWhole = (item: unknown): item is number => Number.isSafeInteger(item) && (item as number) >= 0;

function inside(value: number, min: number, max: number): boolean {
  return value >= min && value <= max;
}
