import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import type { Device } from '../../src/runtime/device.js';
import { call } from './devices.js';

type Values = Float32Array | Int32Array | readonly number[];

/** A golden file of test/golden: arrays of cases, or one case, under the name of the objective. */
export function readGolden(name: 'objectives' | 'vectors'): Record<string, unknown> {
  return JSON.parse(readFileSync(new URL(`../golden/${name}.json`, import.meta.url), 'utf8'));
}

/**
 * Runs one op on vectors (plain arrays are f32) and reads all its outputs; fails unless it took one launch. `settings` are
 * scalars, and `true` for optional outputs.
 */
export async function evaluate(
  device: Device,
  op: string,
  inputs: Readonly<Record<string, Values | readonly [Values, readonly number[]]>>,
  settings: Readonly<Record<string, number | boolean | string>> = {},
): Promise<Record<string, number[]>> {
  const tensors = Object.entries(inputs).map(([name, given]) => {
    const shaped = Array.isArray(given) && typeof given[0] === 'object';
    const values = (shaped ? given[0] : given) as Values;
    const array = values instanceof Int32Array ? values : Float32Array.from(values);
    return [name, device.tensor(array, shaped ? (given[1] as readonly number[]) : [array.length])] as const;
  });
  const before = device.stats().launches;
  const outputs = call(device, op, { ...Object.fromEntries(tensors), ...settings });
  await device.synchronize();
  const launches = device.stats().launches - before;
  // Without items a GPU skips the launch; of many rows it adds up in one or two more.
  const most = device.info().name === 'cpu' || Object.values(inputs).every((x) => x.length < 10_000) ? 1 : 3;
  if (launches > most || (launches === 0 && device.info().name === 'cpu'))
    throw new Error(`${op} took ${launches} launches`);
  const read: Record<string, number[]> = {};
  for (const [name, tensor] of Object.entries(outputs)) read[name] = Array.from(await tensor.read());
  for (const [, tensor] of tensors) tensor.dispose();
  for (const tensor of Object.values(outputs)) tensor.dispose();
  return read;
}

/** Central differences of a float64 function. */
export function differentiate(f: (x: number[]) => number, x: readonly number[], step = 1e-5): number[] {
  return x.map((_, i) => {
    const shifted = (by: number) => f(x.map((value, k) => (k === i ? value + by : value)));
    return (shifted(step) - shifted(-step)) / (2 * step);
  });
}

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
export const mean = (values: readonly number[]): number => sum(values) / values.length;
export const rounded = (values: readonly number[]): number[] => values.map(Math.fround);
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
export const logSigmoid = (x: number): number =>
  x < 0 ? x - Math.log1p(Math.exp(x)) : -Math.log1p(Math.exp(-x));
export const clamp = (x: number, low: number, high: number): number => Math.min(Math.max(x, low), high);

/** f32 numbers spread evenly over an interval (fc.double favours the tiny). */
export const between = (min: number, max: number): fc.Arbitrary<number> =>
  fc.integer({ min: 0, max: 1_000_000 }).map((k) => Math.fround(min + ((max - min) * k) / 1_000_000));
