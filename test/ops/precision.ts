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

/** How tensor cores add products: so many at a time, keeping so many bits below the 24 of the largest of them. */
export interface Alignment {
  readonly depth: number;
  readonly bits: number;
}

/**
 * What an H100 showed: of dw of 400 tokens, 264 outputs and 40 features in test/cuda/gemm.test.ts it was off by
 * 1.6257166862487793e-5, and so is `truncating` with these two, to the last digit; with any other pair of 8 or 16 products and
 * 0 to 3 bits it is off by another number. An A100 has 8 and 1, a V100 4 and 0 (Fasi, Higham, Mikaitis and Pranesh, "Numerical
 * behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021).
 */
export const HOPPER: Alignment = { depth: 16, bits: 2 };

/**
 * A simple program on tensor cores: bf16 factors, f32 sums. They do not round to nearest. The products of a step are exact; they
 * and the sum so far are aligned to the largest of them, what is below `bits` bits under its 24 is cut off, and the new sum is cut
 * off to f32. So a sum that keeps its sign loses half a unit of its last place on average at every step, always towards 0, where
 * rounding to nearest loses nothing on average.
 */
export function truncating({ depth, bits }: Alignment): Precision & Required<Pick<Precision, 'step'>> {
  return {
    store: roundBf16,
    sum: Math.fround,
    step: {
      depth,
      add(sum, products) {
        let largest = Math.abs(sum);
        for (const product of products) largest = Math.max(largest, Math.abs(product));
        if (largest === 0) return 0;
        const unit = unitOf(largest) / 2 ** bits;
        let total = Math.trunc(sum / unit);
        for (const product of products) total += Math.trunc(product / unit);
        return towardsZero(total * unit);
      },
    },
  };
}

export const tensorCores = truncating(HOPPER);

/**
 * How far a sum of `count` products on tensor cores may be from the exact one, at most:
 *
 *     ⌈count / depth⌉ · ((depth + 1) · 2^-bits + 1.5) · ulp(largest)
 *
 * At each of ⌈count / depth⌉ steps depth products and the sum so far are cut off, each by less than a unit of the last place
 * kept, 2^-bits · ulp(m) where m is the largest of them; then the new sum is cut off by less than its ulp. `largest` is the
 * largest m of all steps (the cancellation of a sum, or its spread of exponents, is largest / |sum|), and ulp(m) = 2^(⌊log2 m⌋ −
 * 23). Nothing is fitted: `depth` and `bits` are those of the tensor cores. A kernel that cuts the sum into parts and adds
 * these in f32 has one rounding more for each, by half a ulp at most: the half in 1.5, since a part is at least a step.
 */
export function truncationBound(count: number, largest: number, { depth, bits }: Alignment = HOPPER): number {
  return Math.ceil(count / depth) * ((depth + 1) / 2 ** bits + 1.5) * unitOf(largest);
}

/** The largest product, and partial sum of products in their order, of any element of a[m, k] · b[n, k]ᵀ. */
export function largestPartialSum(a: ArrayLike<number>, b: ArrayLike<number>, k: number): number {
  let largest = 0;
  for (let i = 0; i < a.length; i += k)
    for (let j = 0; j < b.length; j += k) {
      let sum = 0;
      for (let d = 0; d < k; d++) {
        const product = a[i + d]! * b[j + d]!;
        sum += product;
        largest = Math.max(largest, Math.abs(product), Math.abs(sum));
      }
    }
  return largest;
}

/** The distance of f32 values around x. */
function unitOf(x: number): number {
  return 2 ** (Math.floor(Math.log2(x)) - 23);
}

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
