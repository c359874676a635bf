// Methods of Python's str.
import { bind, needInt, needText } from './arguments.js';
import { JinjaError, unsupported } from './errors.js';
import { bounded, escaped } from './operators.js';
import { str } from './print.js';
import { lines, splitLeft, splitRight } from './splitting.js';
import {
  type Arguments,
  characters,
  elements,
  isText,
  Markup,
  Tuple,
  textOf,
  truth,
  type Value,
} from './values.js';
import { isSpace } from './white-space.js';

type Method = (text: string, given: Arguments, name: string) => Value;

/** The text without characters of a set at its ends; without `chars`, without white space. */
export function stripped(text: string, chars: Value | undefined, ends: 'left' | 'right' | 'both'): string {
  const set =
    chars === undefined || chars === null ? undefined : new Set(characters(needText(chars, 'strip()')));
  const all = characters(text);
  const goes = (character: string) => (set === undefined ? isSpace(character) : set.has(character));
  let [from, to] = [0, all.length];
  if (ends !== 'right') while (from < to && goes(all[from] as string)) from++;
  if (ends !== 'left') while (to > from && goes(all[to - 1] as string)) to--;
  return from === 0 && to === all.length ? text : all.slice(from, to).join('');
}

/** Python's `capitalize`: the first character in upper case, the others in lower. */
export function capitalized(text: string): string {
  const [first = '', ...rest] = characters(text);
  return titled(first) + rest.join('').toLowerCase();
}

function titled(character: string): string {
  const [first = '', ...rest] = characters(character.toUpperCase());
  return first + rest.join('').toLowerCase();
}

/** Python's `replace`, from the left and at most `count` times. */
export function replaced(text: string, old: string, by: string, count = -1): string {
  const parts = old === '' ? ['', ...characters(text), ''] : text.split(old);
  const most = count < 0 ? parts.length - 1 : Math.min(count, parts.length - 1);
  if (text.length + most * (by.length - old.length) > 1 << 26) throw new JinjaError('a text grows too long');
  return (
    parts.slice(0, most + 1).join(by) +
    parts
      .slice(most + 1)
      .map((part) => old + part)
      .join('')
  );
}

function affix(isAffix: (text: string, part: string) => boolean): Method {
  return (text, given, name) => {
    const [part, start, end] = bind(name, given, ['prefix', 'start', 'end'], 1) as readonly Value[];
    const within =
      start === undefined && end === undefined
        ? text
        : characters(text)
            .slice(start == null ? 0 : needInt(start, name), end == null ? undefined : needInt(end, name))
            .join('');
    const parts = part instanceof Tuple ? part.items : [part];
    return parts.some((each) => isAffix(within, needText(each, `${name}()`)));
  };
}

function search(from: 'first' | 'last', mustBe: boolean): Method {
  return (text, given, name) => {
    const [part] = bind(name, given, ['sub'], 1);
    const sought = needText(part, `${name}()`);
    const at = from === 'first' ? text.indexOf(sought) : text.lastIndexOf(sought);
    if (at < 0 && mustBe) throw new JinjaError('substring not found');
    return BigInt(at < 0 ? at : characters(text.slice(0, at)).length);
  };
}

function padded(fill: (text: string, missing: number, by: string) => string): Method {
  return (text, given, name) => {
    const [width, by] = bind(name, given, ['width', 'fillchar'], 1);
    const missing = needInt(width, `${name}()`) - characters(text).length;
    const filler = by === undefined ? ' ' : needText(by, `${name}()`);
    if (missing <= 0) return text;
    bounded(text);
    if (missing > 1 << 20) throw new JinjaError('a text grows too long');
    return fill(text, missing, filler);
  };
}

/** Whether all cased characters have that case, and one is cased. */
function cased(good: RegExp, bad: RegExp): Method {
  return (text) => good.test(text) && !bad.test(text);
}

function parted(from: 'first' | 'last'): Method {
  return (text, given, name) => {
    const separator = needText(bind(name, given, ['sep'], 1)[0], `${name}()`);
    if (separator === '') throw new JinjaError('empty separator');
    const at = from === 'first' ? text.indexOf(separator) : text.lastIndexOf(separator);
    if (at < 0) return new Tuple(from === 'first' ? [text, '', ''] : ['', '', text]);
    return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
  };
}

/** `str.format` with plain fields: `{}`, `{0}` and `{name}`. */
function format(text: string, { args, named }: Arguments): string {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (all, field?: string) => {
    if (all === '{{' || all === '}}') return all[0] as string;
    if (field === undefined) throw new JinjaError(`single '${all}' encountered in format string`);
    const value = field === '' ? args[next++] : /^\d+$/.test(field) ? args[Number(field)] : named.get(field);
    if (value === undefined)
      throw /^\w*$/.test(field)
        ? new JinjaError(`format() misses '${field}'`)
        : unsupported(`the field '${field}' of format()`);
    return str(value);
  });
}

export const TEXT_METHODS: Readonly<Record<string, Method>> = {
  capitalize: (text) => capitalized(text),
  center: padded((text, missing, by) => {
    // CPython puts the odd blank to the left where the width is odd.
    const left = (missing >> 1) + (missing & (characters(text).length + missing) & 1);
    return by.repeat(left) + text + by.repeat(missing - left);
  }),
  count: (text, given) => {
    const part = needText(bind('count', given, ['sub'], 1)[0], 'count()');
    return BigInt(part === '' ? characters(text).length + 1 : text.split(part).length - 1);
  },
  endswith: affix((text, part) => text.endsWith(part)),
  find: search('first', false),
  format: (text, given) => bounded(format(text, given)),
  index: search('first', true),
  isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isascii: (text) => !/[^\0-\x7f]/.test(text),
  isdecimal: (text) => /^\p{Nd}+$/u.test(text),
  isdigit: (text) => {
    if (/\p{No}/u.test(text)) throw unsupported('isdigit() of such a character');
    return /^\p{Nd}+$/u.test(text);
  },
  islower: cased(/\p{Lowercase}/u, /[\p{Uppercase}\p{Lt}]/u),
  isspace: (text) => text !== '' && characters(text).every(isSpace),
  isupper: cased(/\p{Uppercase}/u, /[\p{Lowercase}\p{Lt}]/u),
  join: (text, given) => {
    const items = elements(bind('join', given, ['iterable'], 1)[0] as Value);
    return bounded(items.map((item) => needText(item, 'join()')).join(text));
  },
  ljust: padded((text, missing, by) => text + by.repeat(missing)),
  lower: (text) => text.toLowerCase(),
  lstrip: (text, given) => stripped(text, bind('lstrip', given, ['chars'])[0], 'left'),
  partition: parted('first'),
  removeprefix: (text, given) => {
    const part = needText(bind('removeprefix', given, ['prefix'], 1)[0], 'removeprefix()');
    return text.startsWith(part) ? text.slice(part.length) : text;
  },
  removesuffix: (text, given) => {
    const part = needText(bind('removesuffix', given, ['suffix'], 1)[0], 'removesuffix()');
    return part !== '' && text.endsWith(part) ? text.slice(0, -part.length) : text;
  },
  replace: (text, given) => {
    const [old, by, count] = bind('replace', given, ['old', 'new', 'count'], 2);
    return replaced(
      text,
      needText(old, 'replace()'),
      needText(by, 'replace()'),
      count === undefined ? -1 : needInt(count, 'replace()'),
    );
  },
  rfind: search('last', false),
  rindex: search('last', true),
  rjust: padded((text, missing, by) => by.repeat(missing) + text),
  rpartition: parted('last'),
  rsplit: (text, given) => splitRight(text, ...separation('rsplit', given)),
  rstrip: (text, given) => stripped(text, bind('rstrip', given, ['chars'])[0], 'right'),
  split: (text, given) => splitLeft(text, ...separation('split', given)),
  splitlines: (text, given) => {
    const [keeps] = bind('splitlines', given, ['keepends']);
    return lines(text, keeps !== undefined && truth(keeps));
  },
  startswith: affix((text, part) => text.startsWith(part)),
  strip: (text, given) => stripped(text, bind('strip', given, ['chars'])[0], 'both'),
  swapcase: (text) =>
    characters(text)
      .map((each) => (each === each.toUpperCase() ? each.toLowerCase() : each.toUpperCase()))
      .join(''),
  title: (text) => text.replace(/[\p{L}\p{Nl}]+/gu, (word) => capitalized(word)),
  upper: (text) => text.toUpperCase(),
  zfill: (text, given) => {
    const missing = needInt(bind('zfill', given, ['width'], 1)[0], 'zfill()') - characters(text).length;
    if (missing > 1 << 20) throw new JinjaError('a text grows too long');
    const sign = /^[-+]/.exec(text)?.[0] ?? '';
    return sign + '0'.repeat(Math.max(0, missing)) + text.slice(sign.length);
  },
};

function separation(name: string, given: Arguments): [string | undefined, number] {
  const [separator, most] = bind(name, given, ['sep', 'maxsplit']);
  const text = separator === undefined || separator === null ? undefined : needText(separator, `${name}()`);
  if (text === '') throw new JinjaError('empty separator');
  return [text, most === undefined ? -1 : needInt(most, `${name}()`)];
}

/** Methods of str that are left out: a template that uses one is refused. */
const LEFT_OUT =
  /^(casefold|encode|expandtabs|format_map|isidentifier|isnumeric|isprintable|istitle|maketrans|translate|__\w+)$/;

/** The method of a text, or undefined for a name that str does not have. */
export function textMethod(of: string | Markup, name: string): ((given: Arguments) => Value) | undefined {
  if (LEFT_OUT.test(name)) throw unsupported(`${name}() of a text`);
  const method = Object.hasOwn(TEXT_METHODS, name) ? TEXT_METHODS[name] : undefined;
  if (method === undefined) return undefined;
  if (!(of instanceof Markup)) return (given) => method(of, given, name);
  return (given) =>
    safe(
      method(of.text, name === 'join' || name === 'replace' ? escapedArguments(given, name) : given, name),
    );
}

/** Joins texts as Markup does: a text that joins a safe one is escaped, and the result is safe. */
function escapedArguments({ args, named }: Arguments, name: string): Arguments {
  if (named.size > 0) throw unsupported(`${name}() of a safe text with named arguments`);
  if (name === 'join') return { args: [elements(args[0] ?? []).map(escaped)], named };
  return { args: args.map((value, i) => (i === 1 && isText(value) ? escaped(value) : value)), named };
}

function safe(value: Value): Value {
  if (isText(value)) return new Markup(textOf(value));
  if (Array.isArray(value)) return value.map(safe);
  return value instanceof Tuple ? new Tuple(value.items.map(safe)) : value;
}
