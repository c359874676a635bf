// Mathematics in words, without dollar signs: `so it is 2·10³ m`, `x = \frac{3}{4}`, `the point (3, 4)`.
import { BudgetExceeded, DEFAULT_STEPS, StepBudget } from './budget.js';
import { Unreadable } from './cursor.js';
import { normalise } from './normalise.js';
import { parseAnswer } from './parse.js';
import { NotExact } from './rational.js';
import { isUnitName } from './units.js';

/** A stretch of mathematics; an end of the text is not part of it. */
export interface PlainValue {
  readonly at: number;
  readonly end: number;
  readonly text: string;
}

const SIGN = /(?:[-−+±∓]|\\(?:pm|mp)(?![a-zA-Z]))/y;
const NUMBER =
  /(?:\\?[$€£]\s?)?(?:\d+\s\d+\/\d+(?![\d/])|\d+\s?[¼-¾⅐-⅞]|(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?: \d{3}){1,6}(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)/y;
const FRACTION = /[¼-¾⅐-⅞]/y;
const LETTER = /(?<![\p{L}\p{M}'’\d])(?:\p{Script=Latin}|\p{Script=Greek})(?![\p{L}\p{M}'’])|[π∞]/uy;
const FACTOR = /\p{L}(?![\p{L}\p{M}\d'’])|[π∞]/uy;
const CALL = /(?:sqrt|cbrt|sin|cos|tan|log|ln|exp)(?=\()|pi(?!\p{L})/uy;
const ROOT = /[√∛]\s?/y;
const COMMAND =
  /\\(?!(?:text|mbox|boxed|fbox|box|begin|end|item|left|right|quad|qquad)(?![a-zA-Z]))[a-zA-Z]+/y;
const SPACE = /(?:[ \t]|\\[,;:!](?!\d{3})|\\left(?=\s?[([|\\])|\\right(?=\s?[)\]|\\]))*/y;
const POSTFIX =
  /[⁰¹²³⁴-⁹⁺⁻ⁱⁿ]+|[₀-₉]+|_(?:\d+|[a-z](?![a-z])|(?=\{))|°(?!\s?[CFK])|\s?\\?%|!(?=\s*[-+*/·×=,.);]|\s\p{Ll})|\^\s?[-−]?(?=[\d{(\\]|\p{L}(?!\p{L}))|\*\*\s?[-−]?(?=[\d(])/uy;
const INFIX =
  /[+−±∓*×·⋅∙/÷=≈<>≤≥≠]|[<>]=|-|(?<=\d):(?=\d)|x(?=\s10\s?[\^⁰¹²³⁴-⁹⁻])|\\(?:cdot|times|div|pm|mp|leq?|geq?|neq?|lt|gt|approx|equiv|cup|cap|in|setminus)(?![a-zA-Z])/y;
const INFIX_COMMAND = /^\\(?:cdot|times|div|pm|mp|leq?|geq?|neq?|lt|gt|approx|equiv|cup|cap|in|setminus)$/;
const MAX_DEPTH = 12;
const MAX_GROUP = 200;
/** Characters at the end of a text in which a value is looked for. */
const MAX_TEXT = 20_000;

/** Finds stretches in one text; every method gives the place after what it reads, or -1. */
class Reader {
  constructor(private readonly text: string) {}

  private match(pattern: RegExp, at: number): number {
    pattern.lastIndex = at;
    const found = pattern.exec(this.text);
    return found === null ? -1 : at + found[0].length;
  }

  /** Operands with signs between them. */
  run(at: number, depth = 0): number {
    let end = this.operand(at, depth);
    if (end < 0) return -1;
    for (;;) {
      const space = this.match(SPACE, end);
      const operator = this.match(INFIX, space);
      const isArticle = /(?:^|[^\p{L}])[aAI]$/u.test(this.text.slice(Math.max(0, end - 2), end));
      const isRange =
        operator === end + 1 && /\d-\d/.test(this.text.slice(end - 1, end + 2)) && this.isNumber(at, end);
      // `a - b` and `a-b`, but no `word -b`.
      const next =
        operator < 0 || isRange ? (isArticle ? -1 : this.command(space)) : this.match(SPACE, operator);
      const after = next < 0 ? -1 : this.operand(next, depth);
      if (after < 0) return end;
      end = after;
    }
  }

  private isNumber(at: number, end: number): boolean {
    return /^[\s\d.,]*$/.test(this.text.slice(at, end));
  }

  /** The place itself where a command begins there that is an operand. */
  private command(at: number): number {
    const end = this.match(COMMAND, at);
    return end < 0 || INFIX_COMMAND.test(this.text.slice(at, end)) ? -1 : at;
  }

  private operand(at: number, depth: number): number {
    const sign = this.match(SIGN, at);
    let end = this.atom(sign < 0 ? at : sign, depth);
    for (let next = end; next >= 0; next = this.suffix(end, depth)) end = next;
    return end;
  }

  private atom(at: number, depth: number): number {
    if (depth > MAX_DEPTH) return -1;
    const simple = this.first([NUMBER, FRACTION], at);
    if (simple >= 0) return simple;
    const root = this.match(ROOT, at);
    if (root >= 0) return this.atom(root, depth + 1);
    const call = this.match(CALL, at);
    if (call >= 0) return this.text[call] === '(' ? this.group(call, depth) : call;
    const letter = this.match(LETTER, at);
    if (letter >= 0) return letter;
    const bracket = this.group(this.match(SPACE, at), depth);
    return bracket >= 0 ? bracket : this.latex(at);
  }

  /** A command with its arguments. */
  private latex(at: number): number {
    let end = this.match(COMMAND, at);
    if (end < 0 || INFIX_COMMAND.test(this.text.slice(at, end))) return -1;
    const isFraction = /^\\[dt]?frac$|^\\sqrt$/.test(this.text.slice(at, end));
    for (let i = 0; i < 3; i++) {
      const next = this.match(/\s?\[\d{1,2}\](?=\{)|\s?(?=\{)/y, end);
      const braced = next < 0 ? -1 : this.braced(next);
      const digit = braced < 0 && isFraction ? this.match(/\s?\d/y, end) : braced;
      if (digit < 0) break;
      end = digit;
    }
    return end;
  }

  /** Exponents, subscripts and factors right after an operand. */
  private suffix(at: number, depth: number): number {
    const end = this.match(POSTFIX, at);
    if (end >= 0) {
      if (!/[_^*\-−]$/.test(this.text.slice(at, end).trimEnd())) return end;
      return this.text[end] === '{' ? this.braced(end) : this.atom(end, depth + 1);
    }
    const before = this.text[at - 1] ?? '';
    if (/\p{L}/u.test(before) && this.text[at] !== '(') return -1;
    const factor = this.first([FRACTION, FACTOR], at);
    if (factor >= 0) return factor;
    if (this.text[at] === '(') return this.group(at, depth);
    const isRoot = /^(?:[√∛]|pi(?!\p{L})|sqrt\()/u.test(this.text.slice(at, at + 5));
    return isRoot || this.text[at] === '\\' ? this.atom(at, depth + 1) : -1;
  }

  private first(patterns: readonly RegExp[], at: number): number {
    for (const pattern of patterns) {
      const end = this.match(pattern, at);
      if (end >= 0) return end;
    }
    return -1;
  }

  /** Brackets with mathematics alone in them. */
  private group(at: number, depth: number): number {
    let next = this.match(/[([]|\\\{/y, at);
    if (next < 0) return -1;
    for (;;) {
      const end = this.run(this.match(SPACE, next), depth + 1);
      if (end < 0) return -1;
      const space = this.match(SPACE, end);
      const close = this.match(/[)\]]|\\\}/y, space);
      if (close >= 0) return close;
      next = this.match(/[,;]/y, space);
      if (next < 0) return -1;
    }
  }

  private braced(at: number): number {
    let depth = 0;
    for (let end = at; end < Math.min(this.text.length, at + MAX_GROUP); end++) {
      const character = this.text[end];
      if (character === '\\') end++;
      else if (character === '\n') return -1;
      else if (character === '{') depth++;
      else if (character === '}' && --depth === 0) return end + 1;
    }
    return -1;
  }
}

/** The places where mathematics may begin: not inside a word. */
const BEGIN =
  /(?<![\w.\\^_{])[\d.+−±∓-]|[([√∛π∞¼-¾⅐-⅞]|\\[a-zA-Z{$]|[$€£](?=\s?\d)|(?<![\p{L}\p{M}\d'’])(?:\p{L}(?![\p{L}\p{M}'’])|(?:sqrt|cbrt|sin|cos|tan|log|ln|exp)\(|pi(?!\p{L}))/gu;
const HAS_VALUE = /[\d¼-¾⅐-⅞π∞√]|\\(?:pi|infty|frac|sqrt)(?![a-z])/;
const NAMED =
  /(?:(?<![\p{L}\\])\p{L}|\\math\w+\{\w+\}|\\(?!(?:pi|infty|frac|sqrt)(?![a-z]))[a-z]+)(?:[_^](?:-?\d+|\p{L}|\{[^{}]*\})){1,2}/gu;
/** A number with one letter or unit right after it: `5m/s`, `10k`. */
const LETTERED = /^([-−]?[\d.,]+)[a-zA-Z](?:\s?\/\s?[a-zA-Z])?(?:[²³]|\^[23])?$/;
const UNIT =
  /\s?((?:(?:square|cubic)\s)?(\p{L}+)(?:[²³]|\^\{?[23]\}?|\ssquared\b|\scubed\b)?)(?![\p{L}\d/-])(?!\s?(?:\/|per\b|an?\b|each\b|every\b)|\s(?:[CF]\b|Celsius|Fahrenheit))/uy;
const CLOCK = /(?<=\d:\d\d)\s?[ap]\.?m\b/iy;
/** Words that also mean something else after a number. */
const NO_UNITS = new Set('in pound pounds dozen dozens hundred hundreds'.split(' '));

/**
 * The last value of a text in words, in dollar signs nowhere: a number with its unit, or a stretch of mathematics, of an
 * equation its last side. Undefined where there is none that can be read.
 */
export function lastPlain(text: string): PlainValue | undefined {
  const reader = new Reader(text);
  let last: PlainValue | undefined;
  let first: PlainValue | undefined;
  BEGIN.lastIndex = Math.max(0, text.length - MAX_TEXT);
  for (let begin = BEGIN.exec(text); begin !== null; begin = BEGIN.exec(text)) {
    const at = begin.index;
    const end = reader.run(at);
    BEGIN.lastIndex = Math.max(end, at + 1);
    if (end < 0 || !hasValue(text.slice(at, end))) continue;
    first = last;
    last = { at, end, text: text.slice(at, end) };
  }
  if (last === undefined) return undefined;
  const value = withUnit(text, sideOf(last));
  return isReadable(value.text) ? whole(text, first, value) : undefined;
}

/** The value with the quantity right before it of which it is a part: `5 feet 3 inches`. */
function whole(text: string, before: PlainValue | undefined, value: PlainValue): PlainValue {
  const first = before && withUnit(text, before);
  if (first === undefined || !/^,? (?:and )?$/.test(text.slice(first.end, value.at))) return value;
  const joined = text.slice(first.at, value.end);
  const isOne = /^[\d.,]+ \p{L}+,? (?:and )?[\d.,]+ \p{L}+$/u.test(joined);
  const plain = joined.replace(/,? (?:and )?(?=[\d.,]+ \p{L}+$)/u, ' ');
  return isOne && isReadable(plain) ? { at: first.at, end: value.end, text: plain } : value;
}

/** Signs between the sides of an equation. */
const EQUALS = /[≈=]|\\(?:approx|equiv)(?![a-zA-Z])/y;

/** The last side of an equation that has a value; a number without a letter right after it, and without a dash before it. */
function sideOf({ at, end, text }: PlainValue): PlainValue {
  const sides: { start: number; end: number }[] = [];
  let start = 0;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    EQUALS.lastIndex = i;
    const [sign] = EQUALS.exec(text) ?? [];
    if ('([{'.includes(text[i]!)) depth++;
    else if (')]}'.includes(text[i]!)) depth--;
    else if (depth === 0 && sign !== undefined && !/[<>]/.test(text[i - 1] ?? '')) {
      sides.push({ start, end: i });
      start = i + sign.length;
    }
  }
  sides.push({ start, end: text.length });
  const own = sides.reverse().find((side) => hasValue(text.slice(side.start, side.end)))!;
  const side = text.slice(own.start, own.end).trim();
  const signed = side.replace(/^[-−+]\s+(?=[\d.$€£])(?!.*[-+=*/])/, own.start === 0 ? '' : '-');
  const number = (LETTERED.exec(signed)?.[1] ?? signed).trim();
  return {
    at: at + text.indexOf(side, own.start),
    end: own.end === text.length ? end : at + own.end,
    text: number.replace(/\sx\s(?=10)/, ' × '),
  };
}

/** Whether it has a number that is no exponent or subscript of a name: `x^6` and `S_{12}` have none. */
function hasValue(text: string): boolean {
  return HAS_VALUE.test(text.replace(NAMED, 'x'));
}

function withUnit(text: string, value: PlainValue): PlainValue {
  const [all, unit] = unitAt(text, value.end);
  return unit === '' ? value : { ...value, end: value.end + all.length, text: `${value.text} ${unit}` };
}

/** The unit of measure that follows a formula, as LaTeX; empty without one. */
export function unitAfter(text: string, end: number): string {
  const [, unit] = unitAt(text, end);
  if (/illion|thousand/.test(unit)) return '';
  const [, words = '', power = ''] = /^(.*?)([²³]|\^.*)?$/u.exec(unit) ?? [];
  return words === '' ? '' : `\\text{ ${words}}${power}`;
}

function unitAt(text: string, end: number): readonly [all: string, unit: string] {
  CLOCK.lastIndex = end;
  const [clock] = CLOCK.exec(text) ?? [];
  if (clock !== undefined) return [clock, clock.trim()];
  UNIT.lastIndex = end;
  const [all = '', unit, name = ''] = UNIT.exec(text) ?? [];
  return unit === undefined || !isUnitName(name) || NO_UNITS.has(name.toLowerCase()) ? ['', ''] : [all, unit];
}

function isReadable(answer: string): boolean {
  try {
    parseAnswer(normalise(answer), new StepBudget(DEFAULT_STEPS), { thousands: true });
    return true;
  } catch (error) {
    if (error instanceof Unreadable || error instanceof NotExact || error instanceof BudgetExceeded)
      return false;
    throw error;
  }
}
