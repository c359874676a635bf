// The types of config values. `expects` in a field's metadata replaces the wording that error messages would otherwise
// derive from the type.
import { z } from 'zod';
import { LARGEST_SERVED_TEMPERATURE, MIN_TEMPERATURE } from '../generate/options.js';

/** A section; if all its keys have defaults, it may be missing or empty. */
export function section<Shape extends z.ZodRawShape>(shape: Shape) {
  return z.strictObject(shape).prefault({} as never);
}

/** The same fields, marked as keys that many sections have: the documentation says them once. */
export function shared<Shape extends Readonly<Record<string, z.ZodType>>>(
  group: 'optimizer' | 'batches' | 'rounds' | 'rollouts',
  shape: Shape,
): Shape {
  const marked = Object.entries(shape).map(([key, field]) => [key, field.meta({ shared: group })]);
  return Object.fromEntries(marked) as Shape;
}

/** A type of values: for a key without a default, or with the given one. */
interface Field<Type extends z.ZodType> {
  (): Type;
  (fallback: z.util.NoUndefined<z.output<Type>>): z.ZodDefault<Type>;
}

function field<Type extends z.ZodType>(make: () => Type): Field<Type> {
  return ((fallback?: z.util.NoUndefined<z.output<Type>>) =>
    fallback === undefined ? make() : make().default(fallback)) as Field<Type>;
}

export const text = field(() => z.string().min(1).meta({ expects: 'text' }));

export const optionalText = () => text().optional();

/** On or off. */
export const flag = field(() => z.boolean());

/** One of some words; the first is the default. */
export const choice = <const Names extends readonly [string, ...string[]]>(...names: Names) =>
  z.enum(names).default(names[0] as never);

/** A whole number of at least 1. */
export const count = field(() => z.int().min(1));

/** A whole number; 0 switches the feature off. */
export const countOrOff = field(() => z.int().min(0));

/** A whole number; -1 for no limit, as Hugging Face writes it. */
export const countOrUnlimited = () =>
  z
    .int()
    .min(-1)
    .refine((number) => number !== 0)
    .default(-1)
    .meta({ expects: '-1 (no limit) or a whole number of at least 1' });

/** The temperature of drawing, as `generate` takes it; 0 would be the most likely token. */
export const samplingTemperature = field(() => z.number().min(MIN_TEMPERATURE).max(1e6));

/** The temperature of a model behind OpenAI's API. */
export const servedTemperature = field(() => z.number().min(0).max(LARGEST_SERVED_TEMPERATURE));

export const positiveNumber = field(() => z.number().positive());

/** x ≥ 0. */
export const nonNegative = field(() => z.number().min(0));

/** 0 ≤ x ≤ 1. */
export const share = field(() => z.number().min(0).max(1));

/** 0 < x ≤ 1. */
export const positiveShare = field(() => z.number().gt(0).max(1));

/** 0 ≤ x < 1. */
export const fraction = field(() => z.number().min(0).lt(1));

export const countOrAll = field(() => z.union([z.literal('all'), count()]));

export const seed = () =>
  z
    .int()
    .min(0)
    .max(2 ** 32 - 1);

/** Values by name, such as a rank per module. */
export function patterned<Value extends z.ZodType>(value: Value) {
  return z.record(z.string(), value).default({});
}
