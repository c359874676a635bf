/**
 * Strict JSON (RFC 8259) for files that come from elsewhere. Unlike `JSON.parse` it refuses a name that occurs twice in one object
 * (`JSON.parse` keeps the last one silently), nesting deeper than 64 levels, and numbers beyond the range of a double; every error
 * names line and column. Objects have no prototype, so a key such as `__proto__` is an ordinary key.
 */
import { closeSync } from 'node:fs';
import { WeightsError } from './error.js';
import { openWeights, readFully } from './file-bytes.js';

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

const MAX_DEPTH = 64;
/** Largest configuration or index file that is read; the index of a 1,000-layer model has less than 4 MB. */
const MAX_FILE_BYTES = 32 * 1024 * 1024;

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WHITESPACE = /[ \t\n\r]*/y;
const LITERALS: readonly (readonly [string, JsonValue])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
];

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * @param where the source of the text, for errors: a path
 * @throws WeightsError naming `where`, line and column
 */
export function parseJson(text: string, where: string): JsonValue {
  return new Parser(text, where).document();
}

/** Parses a file, whose top level must be an object, by {@link parseJson}. At most 32 MB, UTF-8. */
export function readJsonObject(path: string): JsonObject {
  const value = parseJson(decodeUtf8(readSmallFile(path), path), path);
  if (!isJsonObject(value)) throw new WeightsError(`${path}: expected a JSON object at the top level`);
  return value;
}

/** @throws WeightsError when the bytes are not UTF-8 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new WeightsError(`${where}: expected UTF-8 text, found bytes that are not; the file is damaged`);
  }
}

function readSmallFile(path: string): Uint8Array {
  return openWeights(path, 'a file', (descriptor, size) => {
    if (size > MAX_FILE_BYTES)
      throw new WeightsError(`${path}: expected at most ${MAX_FILE_BYTES} bytes, found ${size}`);
    const bytes = new Uint8Array(size);
    readFully(path, descriptor, bytes, 0);
    closeSync(descriptor);
    return bytes;
  });
}

class Parser {
  #at = 0;
  #depth = 0;

  constructor(
    readonly text: string,
    readonly where: string,
  ) {}

  document(): JsonValue {
    const value = this.#value();
    this.#skip();
    if (this.#at < this.text.length) this.#fail('expected the end of the text');
    return value;
  }

  #value(): JsonValue {
    this.#skip();
    const character = this.text[this.#at];
    if (character === '{') return this.#nested(() => this.#object());
    if (character === '[') return this.#nested(() => this.#array());
    if (character === '"') return this.#string();
    for (const [word, value] of LITERALS) {
      if (this.text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#number();
  }

  #nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) this.#fail(`expected at most ${MAX_DEPTH} levels of nesting`);
    this.#at++;
    const value = parse();
    this.#depth--;
    return value;
  }

  #object(): JsonObject {
    const object: Record<string, JsonValue> = Object.create(null);
    if (this.#take('}')) return object;
    do {
      this.#skip();
      if (this.text[this.#at] !== '"') this.#fail('expected a name in double quotes');
      const start = this.#at;
      const name = this.#string();
      if (name in object) {
        this.#at = start;
        this.#fail(`the name ${JSON.stringify(name.slice(0, 100))} occurs twice in one object`);
      }
      if (!this.#take(':')) this.#fail("expected ':'");
      object[name] = this.#value();
    } while (this.#take(','));
    if (!this.#take('}')) this.#fail("expected ',' or '}'");
    return object;
  }

  #array(): JsonValue[] {
    const array: JsonValue[] = [];
    if (this.#take(']')) return array;
    do array.push(this.#value());
    while (this.#take(','));
    if (!this.#take(']')) this.#fail("expected ',' or ']'");
    return array;
  }

  #string(): string {
    const start = this.#at;
    let escaped = false;
    for (let at = start + 1; at < this.text.length; at++) {
      const code = this.text.charCodeAt(at);
      if (code < 0x20) {
        this.#at = at;
        this.#fail('expected no control character in a string');
      }
      if (code === 0x5c) {
        escaped = true;
        at++;
      } else if (code === 0x22) {
        this.#at = at + 1;
        return escaped ? this.#unescape(start) : this.text.slice(start + 1, at);
      }
    }
    this.#fail('the string that begins here has no end');
  }

  #unescape(start: number): string {
    try {
      return JSON.parse(this.text.slice(start, this.#at)) as string;
    } catch {
      this.#at = start;
      this.#fail('the string that begins here has a bad escape');
    }
  }

  #number(): number {
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.text);
    if (match === null) this.#fail('expected a JSON value');
    const value = Number(match[0]);
    if (!Number.isFinite(value)) this.#fail('expected a number within the range of a double');
    this.#at += match[0].length;
    return value;
  }

  #take(character: string): boolean {
    this.#skip();
    if (this.text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #skip(): void {
    WHITESPACE.lastIndex = this.#at;
    WHITESPACE.test(this.text);
    this.#at = WHITESPACE.lastIndex;
  }

  #fail(problem: string): never {
    const before = this.text.slice(0, this.#at);
    const line = before.split('\n').length;
    const column = this.#at - before.lastIndexOf('\n');
    const found =
      this.#at < this.text.length ? JSON.stringify(this.text.slice(this.#at, this.#at + 20)) : 'the end';
    throw new WeightsError(`${this.where}: line ${line}, column ${column}: ${problem}, found ${found}`);
  }
}
