// The globals of every template: range, dict, namespace, and transformers' raise_exception and strftime_now.
import { bind, needInt, needText } from './arguments.js';
import { JinjaError, unsupported } from './errors.js';
import { checkMember } from './execute.js';
import { str } from './print.js';
import type { Scope } from './scope.js';
import { strftime } from './strftime.js';
import {
  type Arguments,
  Callable,
  Dict,
  elements,
  isText,
  Namespace,
  textOf,
  type Value,
  View,
} from './values.js';

/** Elements that `range` gives at most in Jinja's sandbox. */
const MAX_RANGE = 100_000;

function range(given: Arguments): Value {
  const [first, second, by] = bind('range', given, ['start', 'stop', 'step'], 1);
  const [start, stop] =
    second === undefined
      ? [0, needInt(first, 'range()')]
      : [needInt(first, 'range()'), needInt(second, 'range()')];
  const step = by === undefined ? 1 : needInt(by, 'range()');
  if (step === 0) throw new JinjaError('range() arg 3 must not be zero');
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (count > MAX_RANGE) throw new JinjaError(`range gives at most ${MAX_RANGE} numbers`);
  const items = Array.from({ length: count }, (_, i) => BigInt(start + i * step));
  return new View('range', items, `range(${start}, ${stop}${step === 1 ? '' : `, ${step}`})`);
}

function pairsOf({ args, named }: Arguments): (readonly [Value, Value])[] {
  const [source, ...rest] = args;
  if (rest.length > 0) throw new JinjaError('dict expected at most 1 argument');
  const pairs =
    source === undefined
      ? []
      : source instanceof Dict
        ? source.pairs()
        : elements(source).map((pair) => {
            const both = elements(pair);
            if (both.length !== 2) throw new JinjaError('a dict is made of pairs');
            return both as unknown as readonly [Value, Value];
          });
  return [...pairs, ...named];
}

function namespace(given: Arguments): Value {
  const made = new Namespace();
  for (const [key, value] of pairsOf(given)) {
    if (!isText(key)) throw unsupported('a namespace with a key that is no text');
    checkMember(textOf(key));
    made.values.set(textOf(key), value);
  }
  return made;
}

/** Adds them to a scope. */
export function setGlobals(scope: Scope, now: () => Date): void {
  const all: Readonly<Record<string, (given: Arguments) => Value>> = {
    range,
    namespace,
    dict: (given) => new Dict(pairsOf(given)),
    raise_exception: (given) => {
      throw new JinjaError(str(bind('raise_exception', given, ['message'], 1)[0] as Value));
    },
    strftime_now: (given) =>
      strftime(needText(bind('strftime_now', given, ['format'], 1)[0], 'strftime_now()'), now()),
  };
  for (const [name, call] of Object.entries(all)) scope.set(name, new Callable(name, call));
  for (const name of ['cycler', 'joiner', 'lipsum'])
    scope.set(
      name,
      new Callable(name, () => {
        throw unsupported(`${name}()`);
      }),
    );
}
