// `value.name` and `value[key]`, as Jinja's sandbox looks them up.
import { bind } from './arguments.js';
import { JinjaError, unsupported } from './errors.js';
import { textMethod } from './text-methods.js';
import {
  type Arguments,
  Callable,
  characters,
  Dict,
  isInt,
  isText,
  Namespace,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
  View,
} from './values.js';

/** `value.name`: methods and attributes first, then keys. */
export function attribute(of: Value, name: string): Value {
  if (of instanceof Undefined) throw of.error;
  return firstOf(
    () => own(of, name),
    () => keyed(of, name),
    () => missing(of, name),
  );
}

/** `value[key]`: keys first, then methods and attributes. */
export function item(of: Value, key: Value): Value {
  if (of instanceof Undefined) throw of.error;
  return firstOf(
    () => keyed(of, key),
    () => (isText(key) ? own(of, textOf(key)) : undefined),
    () => missing(of, key),
  );
}

/** The first value that exists; None counts as one. */
function firstOf(...ways: readonly (() => Value | undefined)[]): Value {
  for (const way of ways) {
    const value = way();
    if (value !== undefined) return value;
  }
  return null;
}

function missing(of: Value, key: Value): Undefined {
  return new Undefined(`'${isText(key) ? textOf(key).slice(0, 60) : typeName(key)}' of a ${typeName(of)}`);
}

function keyed(of: Value, key: Value): Value | undefined {
  if (of instanceof Dict) return Array.isArray(key) || key instanceof Dict ? undefined : of.get(key);
  if (!isInt(key)) return undefined;
  const items = isText(of)
    ? characters(textOf(of))
    : of instanceof Tuple || (of instanceof View && of.kind === 'range')
      ? of.items
      : Array.isArray(of)
        ? of
        : undefined;
  const at = Number(key);
  return items?.[at < 0 ? at + items.length : at];
}

type Method = (given: Arguments) => Value;

function own(of: Value, name: string): Value | undefined {
  if (name.startsWith('__')) throw unsupported(`the attribute '${name.slice(0, 40)}'`);
  if (of instanceof Namespace) return of.values.get(name);
  if (of instanceof Callable) return of.attributes?.(name);
  const method = isText(of)
    ? textMethod(of, name)
    : of instanceof Dict
      ? dictMethod(of, name)
      : Array.isArray(of) || of instanceof Tuple
        ? listMethod(of, name)
        : otherAttribute(of, name);
  return method && new Callable(name, method);
}

function dictMethod(of: Dict, name: string): Method | undefined {
  const view = (kind: View['kind'], items: () => readonly Value[]) => (given: Arguments) => {
    bind(name, given, []);
    return new View(kind, items());
  };
  switch (name) {
    case 'get':
      return (given) => {
        const [key, otherwise] = bind('get', given, ['key', 'default'], 1);
        const found = of.get(key as Value);
        return found === undefined ? (otherwise ?? null) : found;
      };
    case 'items':
      return view('dict_items', () => of.pairs().map((pair) => new Tuple(pair)));
    case 'keys':
      return view('dict_keys', () => of.keys());
    case 'values':
      return view('dict_values', () => of.pairs().map(([, value]) => value));
    case 'copy':
      return () => new Dict(of.pairs());
    case 'clear':
    case 'pop':
    case 'popitem':
    case 'setdefault':
    case 'update':
      return changes('dict', name);
    case 'fromkeys':
      throw unsupported('fromkeys() of a dict');
  }
  return undefined;
}

/** The sandbox refuses what changes a value. */
function changes(type: string, name: string): Method {
  return () => {
    throw new JinjaError(`access to attribute '${name}' of '${type}' object is unsafe`);
  };
}

function listMethod(of: Value[] | Tuple, name: string): Method | undefined {
  if (name === 'count' || name === 'index') throw unsupported(`${name}() of a ${typeName(of)}`);
  if (of instanceof Tuple) return undefined;
  if (name === 'copy') return () => [...of];
  return /^(append|clear|extend|insert|pop|remove|reverse|sort)$/.test(name)
    ? changes('list', name)
    : undefined;
}

const NUMBERS =
  /^(real|imag|conjugate|bit_length|bit_count|numerator|denominator|to_bytes|from_bytes|as_integer_ratio|is_integer|hex|fromhex)$/;
const VIEWS = /^(isdisjoint|mapping|start|stop|step|count|index|send|throw|close|gi_\w+)$/;

function otherAttribute(of: Value, name: string): undefined {
  const has =
    (of !== null && typeof of !== 'object' && NUMBERS.test(name)) || (of instanceof View && VIEWS.test(name));
  if (has) throw unsupported(`'${name}' of a ${typeName(of)}`);
  return undefined;
}
