import { bf16ToFloat32, float32ToBf16 } from '../../src/runtime/tensor.js';

/**
 * The arithmetic of a reference: `store` rounds a value that is written to memory, `sum` a partial sum. `exact` gives the
 * true value, `naive` the value of a simple program in that storage, whose error sets the tolerance of a kernel.
 */
export interface Precision {
  readonly store: (x: number) => number;
  readonly sum: (x: number) => number;
  /** How a product of matrices adds `depth` products at a time to what it has; without it, one by one and each by `sum`. */
  readonly step?: {
    readonly depth: number;
    readonly add: (sum: number, products: Float64Array) => number;
  };
}

export const exact: Precision = { store: (x) => x, sum: (x) => x };

export function naive(dtype: 'f32' | 'bf16'): Precision {
  return { store: dtype === 'bf16' ? roundBf16 : Math.fround, sum: Math.fround };
}

const cell = new Float32Array(1);
const word = new Uint32Array(cell.buffer);

/** To f32, cut off. */
function towardsZero(x: number): number {
  cell[0] = x;
  if (Math.abs(cell[0]) > Math.abs(x)) word[0]! -= 1; // the next float towards 0
  return cell[0];
}

/**
 * A simple program on an H100's tensor cores: bf16 factors, f32 sums. They do not round to nearest. The products of a step are
 * exact; they and the sum so far are aligned to the largest of them, what is below 2 bits under its 24 is cut off, and the new
 * sum is cut off to f32. So a sum that keeps its sign loses half a unit of its last place on average at every step, always
 * towards 0, where rounding to nearest loses nothing on average. Fasi, Higham, Mikaitis and Pranesh measured this of V100 to
 * A100 ("Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021; an A100 has steps of 8 and 1 bit).
 * The 16 and the 2 are what an H100 showed: of dw of 400 tokens, 264 outputs and 40 features in test/cuda/gemm.test.ts it was
 * off by 1.6257166862487793e-5, and so is this program, to the last digit; any other pair of steps of 8 or 16 and 0 to 3
 * bits is off by another number.
 */
export const tensorCores: Precision = {
  store: roundBf16,
  sum: Math.fround,
  step: {
    depth: 16,
    add(sum, products) {
      let largest = Math.abs(sum);
      for (const product of products) largest = Math.max(largest, Math.abs(product));
      if (largest === 0) return 0;
      const unit = 2 ** (Math.floor(Math.log2(largest)) - 25);
      let total = Math.trunc(sum / unit);
      for (const product of products) total += Math.trunc(product / unit);
      return towardsZero(total * unit);
    },
  },
};

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
