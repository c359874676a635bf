// Lists and objects as Python prints them: `repr` of lists and dicts (pandas), NumPy's text of arrays (`datasets`).

import { noteFloat } from '../files/exact-json.js';

/** A list that NumPy shortened to its first and last three elements. */
export const SHORTENED = Symbol('shortened');

/** Not what Python prints. */
const NONE = Symbol('none');

const DEEPEST = 64;
/** Elements that NumPy leaves at each end of an array that it shortens. */
const EDGE = 3;

const NAMES: Readonly<Record<string, unknown>> = { True: true, False: false, None: null, nan: null };
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  a: '\x07',
  b: '\b',
  f: '\f',
  v: '\v',
  '0': '\0',
};
const CODES: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/**
 * The list or object that Python or NumPy printed as this text: `['a', 'b']`, `['a' 'b']`, `[1. nan]`,
 * `{'role': 'user', 'n': None}`, `array([1, 2])`, `np.float64(0.5)`. Missing numbers (`nan`) are null.
 *
 * @returns `undefined` for any other text, `SHORTENED` where NumPy left elements out (it does beyond 1,000)
 */
export function pythonValue(text: string): unknown {
  const reader = new Reader(text);
  const value = reader.value(0);
  if (value === NONE || !reader.atEnd()) return undefined;
  return reader.shortened ? SHORTENED : value;
}

class Reader {
  shortened = false;
  /** Whether the last number was a float. */
  private isFloat = false;
  private at = 0;

  constructor(private readonly text: string) {}

  atEnd(): boolean {
    this.skipSpace();
    return this.at === this.text.length;
  }

  value(depth: number): unknown {
    if (depth > DEEPEST) return NONE;
    this.skipSpace();
    const first = this.text[this.at];
    if (first === '[') return this.list(']', depth);
    if (first === '(') return this.list(')', depth);
    if (first === '{') return this.object(depth);
    if (first === "'" || first === '"') return this.string(first);
    return this.number() ?? this.named(depth);
  }

  /** All elements are apart by commas, as Python prints them, or all by white space, as NumPy does. */
  private list(close: string, depth: number): unknown {
    this.at++;
    const found: unknown[] = [];
    let separator: 'comma' | 'space' | undefined;
    let shortenedAt: number | undefined;
    for (;;) {
      const start = this.at;
      this.skipSpace();
      if (this.take(close)) break;
      if (found.length > 0 || shortenedAt !== undefined) {
        const here = this.take(',') ? 'comma' : this.at > start ? 'space' : undefined;
        if (here === undefined || (separator !== undefined && here !== separator)) return NONE;
        separator = here;
        this.skipSpace();
        if (here === 'comma' && this.take(close)) break;
      }
      if (shortenedAt === undefined && this.text.startsWith('...', this.at)) {
        this.at += 3;
        shortenedAt = found.length;
        continue;
      }
      const element = this.value(depth + 1);
      if (element === NONE) return NONE;
      if (this.isFloat) noteFloat(found, found.length, element);
      found.push(element);
    }
    if (shortenedAt === undefined) return found;
    if (separator === 'space' && shortenedAt === EDGE && found.length === 2 * EDGE) this.shortened = true;
    return this.shortened ? found : NONE;
  }

  private object(depth: number): unknown {
    this.at++;
    const found = new Map<string, { readonly value: unknown; readonly isFloat: boolean }>();
    for (;;) {
      this.skipSpace();
      if (this.take('}')) break;
      if (found.size > 0) {
        if (!this.take(',')) return NONE;
        this.skipSpace();
      }
      const quote = this.text[this.at];
      const key = quote === "'" || quote === '"' ? this.string(quote) : NONE;
      this.skipSpace();
      if (typeof key !== 'string' || !this.take(':')) return NONE;
      const value = this.value(depth + 1);
      if (value === NONE) return NONE;
      found.set(key, { value, isFloat: this.isFloat });
    }
    const all = Object.fromEntries([...found].map(([key, { value }]) => [key, value]));
    for (const [key, { value, isFloat }] of found) if (isFloat) noteFloat(all, key, value);
    return all;
  }

  private string(quote: string): unknown {
    let found = '';
    for (this.at++; ; ) {
      const end = this.text.slice(this.at).search(quote === "'" ? /['\\\n]/ : /["\\\n]/);
      if (end < 0) return NONE;
      found += this.text.slice(this.at, this.at + end);
      this.at += end + 1;
      const stop = this.text[this.at - 1];
      if (stop === quote) return found;
      if (stop === '\n') return NONE;
      const escaped = this.escape();
      if (escaped === undefined) return NONE;
      found += escaped;
    }
  }

  private escape(): string | undefined {
    const kind = this.text[this.at++] ?? '';
    if ('\'"\\'.includes(kind) && kind !== '') return kind;
    const digits = CODES[kind];
    if (digits === undefined) return ESCAPES[kind];
    const code = this.text.slice(this.at, this.at + digits);
    this.at += digits;
    if (!new RegExp(`^[0-9a-f]{${digits}}$`, 'i').test(code)) return undefined;
    const point = Number.parseInt(code, 16);
    return point <= 0x10ffff ? String.fromCodePoint(point) : undefined;
  }

  private number(): number | bigint | undefined {
    const text = this.sticky(/[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w.])/iy);
    if (text === undefined) return undefined;
    this.isFloat = /[.e]/i.test(text);
    const number = Number(text);
    // Beyond doubles, as parseExact refuses it.
    if (this.isFloat && !Number.isFinite(number)) return undefined;
    return this.isFloat || Number.isSafeInteger(number) ? number : BigInt(text.replace('+', ''));
  }

  /** A named value: `True`, `None`, `nan`; `array(…)` and `np.float64(…)` give their content. */
  private named(depth: number): unknown {
    const name = this.sticky(/[A-Za-z_][\w.]*/y);
    if (name === undefined) return NONE;
    if (Object.hasOwn(NAMES, name)) return NAMES[name];
    if (name === 'np.True_' || name === 'np.False_') return name === 'np.True_';
    if (!/^(?:array|np\.(?:float|int|uint|str_|bool)\w*)$/.test(name) || !this.take('(')) return NONE;
    const value = this.value(depth + 1);
    this.sticky(/\s*,\s*dtype=[\w.']+/y);
    this.skipSpace();
    return this.take(')') ? value : NONE;
  }

  private skipSpace(): void {
    this.sticky(/\s+/y);
  }

  private take(character: string): boolean {
    if (this.text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  private sticky(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }
}
