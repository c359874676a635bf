import { JinjaError } from './errors.js';
import { type Arguments, isInt, isText, textOf, typeName, Undefined, type Value } from './values.js';

/**
 * The values of parameters, in their order; undefined for those not given.
 *
 * @param names of the parameters; a call with more or other arguments is refused
 * @param required how many of them must be given
 */
export function bind(
  what: string,
  { args, named }: Arguments,
  names: readonly string[],
  required = 0,
): readonly (Value | undefined)[] {
  if (args.length > names.length)
    throw new JinjaError(`${what}() takes at most ${names.length} arguments (${args.length} given)`);
  const values: (Value | undefined)[] = names.map((_, i) => args[i]);
  for (const [name, value] of named) {
    const at = names.indexOf(name);
    if (at < 0) throw new JinjaError(`${what}() got an unexpected keyword argument '${name}'`);
    if (at < args.length) throw new JinjaError(`${what}() got multiple values for argument '${name}'`);
    values[at] = value;
  }
  for (let i = 0; i < required; i++)
    if (values[i] === undefined) throw new JinjaError(`${what}() misses its argument '${names[i]}'`);
  return values;
}

/** @throws JinjaError for anything but a text */
export function needText(value: Value | undefined, what: string): string {
  if (value !== undefined && isText(value)) return textOf(value);
  throw wrongType(value, what, 'str');
}

/** @throws JinjaError for anything but an int */
export function needInt(value: Value | undefined, what: string): number {
  if (value !== undefined && isInt(value)) return Number(value);
  throw wrongType(value, what, 'int');
}

function wrongType(value: Value | undefined, what: string, expected: string): JinjaError {
  if (value instanceof Undefined) return value.error;
  return new JinjaError(
    `${what} expects ${expected}, found ${value === undefined ? 'nothing' : typeName(value)}`,
  );
}
