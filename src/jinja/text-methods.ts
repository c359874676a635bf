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

function search(from: 'first' | 'last'): Method {
  return (text, given, name) => {
    const [part] = bind(name, given, ['sub'], 1);
    const sought = needText(part, `${name}()`);
    const at = from === 'first' ? text.indexOf(sought) : text.lastIndexOf(sought);
    return BigInt(at < 0 ? at : characters(text.slice(0, at)).length);
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
  count: (text, given) => {
    const part = needText(bind('count', given, ['sub'], 1)[0], 'count()');
    return BigInt(part === '' ? characters(text).length + 1 : text.split(part).length - 1);
  },
  endswith: affix((text, part) => text.endsWith(part)),
  find: search('first'),
  format: (text, given) => bounded(format(text, given)),
  isdigit: (text) => {
    if (/\p{No}/u.test(text)) throw unsupported('isdigit() of such a character');
    return /^\p{Nd}+$/u.test(text);
  },
  join: (text, given) => {
    const items = elements(bind('join', given, ['iterable'], 1)[0] as Value);
    return bounded(items.map((item) => needText(item, 'join()')).join(text));
  },
  lower: (text) => text.toLowerCase(),
  lstrip: (text, given) => stripped(text, bind('lstrip', given, ['chars'])[0], 'left'),
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
  rfind: search('last'),
  rsplit: (text, given) => splitRight(text, ...separation('rsplit', given)),
  rstrip: (text, given) => stripped(text, bind('rstrip', given, ['chars'])[0], 'right'),
  split: (text, given) => splitLeft(text, ...separation('split', given)),
  splitlines: (text, given) => {
    const [keeps] = bind('splitlines', given, ['keepends']);
    return lines(text, keeps !== undefined && truth(keeps));
  },
  startswith: affix((text, part) => text.startsWith(part)),
  strip: (text, given) => stripped(text, bind('strip', given, ['chars'])[0], 'both'),
  title: (text) => text.replace(/[\p{L}\p{Nl}]+/gu, (word) => capitalized(word)),
  upper: (text) => text.toUpperCase(),
};

function separation(name: string, given: Arguments): [string | undefined, number] {
  const [separator, most] = bind(name, given, ['sep', 'maxsplit']);
  const text = separator === undefined || separator === null ? undefined : needText(separator, `${name}()`);
  if (text === '') throw new JinjaError('empty separator');
  return [text, most === undefined ? -1 : needInt(most, `${name}()`)];
}

/** Methods of str that no known chat template uses: a template that uses one is refused. */
const LEFT_OUT =
  /^(casefold|center|encode|expandtabs|format_map|is(?!digit)\w+|[lr]just|maketrans|r?(index|partition)|swapcase|translate|zfill|__\w+)$/;

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
