// Jinja's filters. Those that are missing are refused by name.
import { bind, needInt, needText } from './arguments.js';
import { item } from './attributes.js';
import { JinjaError, unsupported } from './errors.js';
import { json } from './json.js';
import { asFloat, asInt } from './numbers.js';
import { bounded, compare, equal, MAX_TEXT } from './operators.js';
import { str } from './print.js';
import { lines } from './splitting.js';
import { TESTS } from './tests.js';
import { capitalized, replaced, stripped, TEXT_METHODS } from './text-methods.js';
import {
  type Arguments,
  characters,
  Dict,
  elements,
  Generator,
  isText,
  lengthOf,
  Markup,
  Tuple,
  textOf,
  truth,
  typeName,
  Undefined,
  type Value,
} from './values.js';

export type Filter = (value: Value, given: Arguments) => Value;

/** A text filter: a safe text stays safe, anything else is written first. */
function ofText(change: (text: string, given: Arguments) => string): Filter {
  return (value, given) =>
    value instanceof Markup ? new Markup(change(value.text, given)) : change(str(value), given);
}

/** The value at a path such as `function.name` or `0.text`. */
function pathGetter(path: Value | undefined, otherwise?: Value): (of: Value) => Value {
  if (path === undefined || path === null) return (of) => of;
  const parts: Value[] = isText(path)
    ? textOf(path)
        .split('.')
        .map((part) => (/^\p{Nd}+$/u.test(part) ? BigInt(part) : part))
    : [path];
  return (of) =>
    parts.reduce((at, part) => {
      const next = item(at, part);
      return next instanceof Undefined && otherwise !== undefined && otherwise !== null ? otherwise : next;
    }, of);
}

function folded(value: Value, isSensitive: boolean): Value {
  return !isSensitive && isText(value) ? textOf(value).toLowerCase() : value;
}

const flag = (value: Value | undefined) => value !== undefined && truth(value);

function sorted(values: readonly Value[], keyOf: (value: Value) => Value, isReversed: boolean): Value[] {
  const keys = values.map((value) => [keyOf(value), value] as const);
  const order = (a: readonly [Value, Value], b: readonly [Value, Value]) => compare(a[0], b[0], '<');
  return keys.sort(isReversed ? (a, b) => order(b, a) : order).map(([, value]) => value);
}

function picked(takes: boolean, byAttribute: boolean): Filter {
  return (value, { args, named }) => {
    if (!truth(value)) return new Generator([]);
    if (byAttribute && args.length === 0) throw new JinjaError('Missing parameter for attribute name');
    const get = byAttribute ? pathGetter(args[0]) : (of: Value) => of;
    const [name, ...rest] = args.slice(byAttribute ? 1 : 0);
    const test =
      name === undefined ? truth : (of: Value) => entry(TESTS, name, 'test')(of, { args: rest, named });
    return new Generator(elements(value).filter((each) => test(get(each)) === takes));
  };
}

function entry<T>(table: Readonly<Record<string, T>>, name: Value, what: string): T {
  const key = needText(name, what);
  const found = Object.hasOwn(table, key) ? table[key] : undefined;
  if (found === undefined) throw unsupported(`the ${what} '${key.slice(0, 40)}'`);
  return found;
}

function extreme(sign: number, name: string): Filter {
  return (value, given) => {
    const [isSensitive, path] = bind(name, given, ['case_sensitive', 'attribute']);
    const get = pathGetter(path);
    const key = (of: Value) => folded(get(of), flag(isSensitive));
    const [first, ...rest] = elements(value);
    if (first === undefined) return new Undefined('the extreme of an empty sequence');
    return rest.reduce((best, each) => (compare(key(each), key(best), '<') * sign > 0 ? each : best), first);
  };
}

function method(name: string): Filter {
  return ofText((text, given) => TEXT_METHODS[name]?.(text, given, name) as string);
}

const fallback: Filter = (value, given) => {
  const [otherwise = '', isBoolean] = bind('default', given, ['default_value', 'boolean']);
  return value instanceof Undefined || (flag(isBoolean) && !truth(value)) ? otherwise : value;
};

const length: Filter = (value, given) => {
  bind('length', given, []);
  return BigInt(lengthOf(value));
};

function indented(text: string, given: Arguments): string {
  const [width = 4n, first, blank] = bind('indent', given, ['width', 'first', 'blank']);
  const by = isText(width) ? textOf(width) : ' '.repeat(Math.max(0, needInt(width, 'indent()')));
  const all = lines(`${text}\n`);
  if (by.length * all.length > MAX_TEXT) throw new JinjaError('a text grows too long');
  const body = all.map((line, i) => (i > 0 && (line !== '' || flag(blank)) ? by + line : line)).join('\n');
  return bounded(flag(first) ? by + body : body);
}

function tojson(value: Value, given: Arguments): Value {
  const names = ['ensure_ascii', 'indent', 'separators', 'sort_keys'];
  const [ensureAscii, indent, separators, sortKeys] = bind('tojson', given, names);
  const isFlat = indent === undefined || indent === null;
  const pair = separators instanceof Tuple ? separators.items : separators;
  const hasPair = Array.isArray(pair) && pair.length === 2;
  if (pair !== undefined && pair !== null && !hasPair) throw new JinjaError('separators are two texts');
  const [itemSeparator, keySeparator] = (hasPair ? pair : [isFlat ? ', ' : ',', ': ']) as Value[];
  return bounded(
    json(value, {
      ensureAscii: flag(ensureAscii),
      indent: isFlat
        ? null
        : isText(indent)
          ? textOf(indent)
          : ' '.repeat(Math.max(0, needInt(indent, 'tojson()'))),
      itemSeparator: needText(itemSeparator, 'separators'),
      keySeparator: needText(keySeparator, 'separators'),
      sortKeys: flag(sortKeys),
    }),
  );
}

export const FILTERS: Readonly<Record<string, Filter>> = {
  capitalize: ofText(capitalized),
  count: length,
  d: fallback,
  default: fallback,
  dictsort: (value, given) => {
    const [isSensitive, by = 'key', isReversed] = bind('dictsort', given, [
      'case_sensitive',
      'by',
      'reverse',
    ]);
    if (!(value instanceof Dict)) throw new JinjaError(`dictsort expects a dict, found ${typeName(value)}`);
    const at = ['key', 'value'].indexOf(needText(by, 'dictsort()'));
    if (at < 0) throw new JinjaError('dictsort sorts by key or value');
    const pairs = value.pairs().map((pair) => new Tuple(pair));
    const key = (pair: Value) => folded((pair as Tuple).items[at] as Value, flag(isSensitive));
    return sorted(pairs, key, flag(isReversed));
  },
  first: (value) => {
    const first = value instanceof Generator ? value.one() : elements(value)[0];
    return first ?? (first === null ? null : new Undefined('the first of an empty sequence'));
  },
  float: (value, given) => {
    const [otherwise = 0] = bind('float', given, ['default']);
    return asFloat(value) ?? otherwise;
  },
  indent: ofText(indented),
  int: (value, given) => {
    const [otherwise = 0n, base = 10n] = bind('int', given, ['default', 'base']);
    if (!equal(base, 10n)) throw unsupported('int with another base than 10');
    return asInt(value) ?? otherwise;
  },
  items: (value) => {
    if (value instanceof Undefined) return new Generator([]);
    if (!(value instanceof Dict)) throw new JinjaError('Can only get item pairs from a mapping.');
    return new Generator(value.pairs().map((pair) => new Tuple(pair)));
  },
  join: (value, given) => {
    const [separator = '', path] = bind('join', given, ['d', 'attribute']);
    const get = pathGetter(path);
    return bounded(
      elements(value)
        .map((each) => str(get(each)))
        .join(str(separator)),
    );
  },
  last: (value) => {
    if (value instanceof Generator) throw new JinjaError("'generator' object is not reversible");
    const last = elements(value).at(-1);
    return last === undefined ? new Undefined('the last of an empty sequence') : last;
  },
  length,
  list: (value) => [...elements(value)],
  lower: method('lower'),
  map: (value, { args, named }) => {
    if (!truth(value)) return new Generator([]);
    if (args.length === 0 && named.has('attribute')) {
      for (const name of named.keys())
        if (name !== 'attribute' && name !== 'default')
          throw new JinjaError(`Unexpected keyword argument '${name}'`);
      return new Generator(elements(value).map(pathGetter(named.get('attribute'), named.get('default'))));
    }
    const [name, ...rest] = args;
    if (name === undefined) throw new JinjaError('map requires a filter argument');
    const filter = entry(FILTERS, name, 'filter');
    return new Generator(elements(value).map((each) => filter(each, { args: rest, named })));
  },
  max: extreme(1, 'max'),
  min: extreme(-1, 'min'),
  reject: picked(false, false),
  rejectattr: picked(false, true),
  replace: (value, given) => {
    const [old, by, count] = bind('replace', given, ['old', 'new', 'count'], 2);
    const most = count === undefined || count === null ? -1 : needInt(count, 'replace()');
    return replaced(str(value), str(old as Value), str(by as Value), most);
  },
  reverse: (value) => {
    if (isText(value)) {
      const text = characters(textOf(value)).reverse().join('');
      return value instanceof Markup ? new Markup(text) : text;
    }
    const all = [...elements(value)].reverse();
    return value instanceof Generator ? all : new Generator(all);
  },
  safe: (value) => (value instanceof Markup ? value : new Markup(str(value))),
  select: picked(true, false),
  selectattr: picked(true, true),
  sort: (value, given) => {
    const names = ['reverse', 'case_sensitive', 'attribute'];
    const [isReversed, isSensitive, path] = bind('sort', given, names);
    const paths: (Value | undefined)[] =
      path !== undefined && isText(path) ? textOf(path).split(',') : [path];
    const getters = paths.map((each) => pathGetter(each));
    return sorted(
      elements(value),
      (of) => getters.map((get) => folded(get(of), flag(isSensitive))),
      flag(isReversed),
    );
  },
  string: (value) => (isText(value) ? value : str(value)),
  title: ofText((text) =>
    text
      .split(/([-\s({[<]+)/)
      .map((part) => capitalized(part))
      .join(''),
  ),
  tojson,
  trim: ofText((text, given) => stripped(text, bind('trim', given, ['chars'])[0], 'both')),
  unique: (value, given) => {
    const [isSensitive, path] = bind('unique', given, ['case_sensitive', 'attribute']);
    const get = pathGetter(path);
    const seen = new Dict();
    return new Generator(
      elements(value).filter((each) => {
        const key = folded(get(each), flag(isSensitive));
        const isNew = seen.get(key) === undefined;
        seen.set(key, true);
        return isNew;
      }),
    );
  },
  upper: method('upper'),
};

/** @throws JinjaError for a filter that there is not */
export function filterNamed(name: string): Filter {
  return entry(FILTERS, name, 'filter');
}
