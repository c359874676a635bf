import { bf16ToFloat32, float32ToBf16 } from '../../src/runtime/tensor.js';

/**
 * The arithmetic of a reference: `store` rounds a value that is written to memory, `sum` a partial sum. `exact` gives the
 * true value, `naive` the value of a simple program in that storage, whose error sets the tolerance of a kernel.
 */
export interface Precision {
  readonly store: (x: number) => number;
  readonly sum: (x: number) => number;
}

export const exact: Precision = { store: (x) => x, sum: (x) => x };

export function naive(dtype: 'f32' | 'bf16'): Precision {
  return { store: dtype === 'bf16' ? roundBf16 : Math.fround, sum: Math.fround };
}

const cell = new Float32Array(1);
const word = new Uint32Array(cell.buffer);

/** To nearest bf16, ties to even; for finite x. */
export function roundBf16(x: number): number {
  cell[0] = x;
  const bits = word[0] as number;
  word[0] = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return cell[0];
}

/** The values that a tensor of `dtype` made from `values` holds. */
export function stored(values: Float32Array, dtype: 'f32' | 'bf16'): Float32Array {
  return dtype === 'bf16' ? bf16ToFloat32(float32ToBf16(values)) : values;
}
