// The types of config values. `expects` in a field's metadata replaces the wording that error messages would otherwise
// derive from the type.
import { z } from 'zod';
import { LEAST_TEMPERATURE } from '../generate/options.js';

/** A section; if all its keys have defaults, it may be missing or empty. */
export function section<Shape extends z.ZodRawShape>(shape: Shape) {
  return z.strictObject(shape).prefault({} as never);
}

export const text = () => z.string().min(1).meta({ expects: 'text' });

/** A whole number of at least 1. */
export const count = () => z.int().min(1);

/** A whole number; 0 switches the feature off. */
export const countOrOff = () => z.int().min(0);

/** A whole number; -1 for no limit, as Hugging Face writes it. */
export const countOrUnlimited = () =>
  z
    .int()
    .min(-1)
    .refine((number) => number !== 0)
    .default(-1)
    .meta({ expects: '-1 (no limit) or a whole number of at least 1' });

/** The temperature of drawing, as `generate` takes it; 0 would be the most likely token. */
export const samplingTemperature = () => z.number().min(LEAST_TEMPERATURE).max(1e6);

export const positiveNumber = () => z.number().positive();

/** 0 ≤ x < 1. */
export const fraction = () => z.number().min(0).lt(1);

export const countOrAll = () => z.union([z.literal('all'), count()]);

export const seed = () =>
  z
    .int()
    .min(0)
    .max(2 ** 32 - 1);

/** Values by name, such as a rank per module. */
export function patterned<Value extends z.ZodType>(value: Value) {
  return z.record(z.string(), value).default({});
}
