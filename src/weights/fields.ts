import { show, WeightsError } from './error.js';
import { isJsonObject, type JsonObject, type JsonValue } from './json.js';

/** Sizes and counts in configuration files stay below this, so that products of two are exact. */
const MAX_INTEGER = 2 ** 31 - 1;

/**
 * The keys of one JSON object, read by type. It remembers which keys were asked for, so that none is ignored by accident. A key whose
 * value is null counts as absent.
 */
export class Fields {
  readonly #read = new Set<string>();

  /** @param where the file, and the key path inside it where there is one, for errors */
  constructor(
    readonly object: JsonObject,
    readonly where: string,
  ) {}

  value(key: string): JsonValue | undefined {
    this.#read.add(key);
    return this.object[key] ?? undefined;
  }

  integer(key: string, min = 0, max = MAX_INTEGER): number | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
      return this.fail(key, `an integer from ${min} to ${max}`);
    }
    return value;
  }

  /** @throws WeightsError when the key is absent */
  requiredInteger(key: string, min = 1, max = MAX_INTEGER): number {
    return this.integer(key, min, max) ?? this.fail(key, `an integer from ${min} to ${max}`);
  }

  /** A number greater than `above` (by default any number). */
  number(key: string, above = Number.NEGATIVE_INFINITY): number | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || value <= above) {
      return this.fail(key, above === Number.NEGATIVE_INFINITY ? 'a number' : `a number above ${above}`);
    }
    return value;
  }

  boolean(key: string): boolean | undefined {
    const value = this.value(key);
    if (value === undefined || typeof value === 'boolean') return value;
    return this.fail(key, 'true or false');
  }

  string(key: string): string | undefined {
    const value = this.value(key);
    if (value === undefined || typeof value === 'string') return value;
    return this.fail(key, 'a string');
  }

  strings(key: string): readonly string[] | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
      return this.fail(key, 'a list of strings');
    }
    return value as readonly string[];
  }

  /** Non-negative integers; a single one counts as a list of one. */
  integers(key: string): readonly number[] | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    const list = Array.isArray(value) ? value : [value];
    if (!list.every((item) => Number.isInteger(item) && item >= 0 && item <= MAX_INTEGER)) {
      return this.fail(key, 'a list of non-negative integers');
    }
    return list as readonly number[];
  }

  nested(key: string): Fields | undefined {
    const value = this.value(key);
    if (value === undefined) return undefined;
    if (!isJsonObject(value)) return this.fail(key, 'an object');
    return new Fields(value, `${this.where}: ${key}`);
  }

  /** The keys that nothing has asked for, with their values. */
  unread(): readonly (readonly [string, JsonValue])[] {
    return Object.entries(this.object).filter(([key]) => !this.#read.has(key));
  }

  /** @throws WeightsError "where: key: expected …, found …" */
  fail(key: string, expected: string): never {
    throw new WeightsError(`${this.where}: ${key}: expected ${expected}, found ${show(this.object[key])}`);
  }
}

/** Whether a value switches nothing on: null, false, 0, "", [] or {}. */
export function isOff(value: JsonValue): boolean {
  return (
    value === null ||
    value === false ||
    value === 0 ||
    value === '' ||
    (typeof value === 'object' && Object.keys(value).length === 0)
  );
}
