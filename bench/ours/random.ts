/** Random operands, cheap even for hundreds of millions of elements. */
import type { Device } from '#src/runtime/device.js';
import { float32ToBf16, type Tensor } from '#src/runtime/tensor.js';
import type { FloatType } from '../cases.js';

/** Elements of the pool that larger tensors repeat; a prime, so that rows differ. */
const POOL = 1_048_573;

/** Uniform in [−1, 1), from a 32-bit xorshift generator. */
export function uniform(length: number, seed = 1): Float32Array {
  const values = new Float32Array(length);
  let state = (seed * 0x9e3779b9) | 0 || 1;
  for (let i = 0; i < length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    values[i] = state / 2 ** 31;
  }
  return values;
}

/** A tensor of values uniform in ±`bound`. */
export function randomTensor(
  device: Device,
  shape: readonly number[],
  dtype: FloatType,
  { bound = 1, seed = 1 }: { readonly bound?: number; readonly seed?: number } = {},
): Tensor {
  const length = shape.reduce((product, extent) => product * extent, 1);
  const pool = uniform(Math.min(length, POOL), seed).map((value) => value * bound);
  if (dtype === 'f32') return device.tensor(repeated(pool, new Float32Array(length)), shape, dtype);
  return device.tensor(repeated(float32ToBf16(pool), new Uint16Array(length)), shape, dtype);
}

export function randomIds(length: number, below: number, seed = 1): Int32Array {
  return Int32Array.from(uniform(length, seed), (value) => Math.floor(((value + 1) / 2) * below));
}

function repeated<T extends Float32Array | Uint16Array>(pool: T, values: T): T {
  for (let at = 0; at < values.length; at += pool.length) {
    values.set(pool.subarray(0, Math.min(pool.length, values.length - at)) as never, at);
  }
  return values;
}
