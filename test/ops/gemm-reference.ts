import { philox4x32 } from '../../src/random/philox.js';
import { largestPartialSum, type Precision, truncationBound } from './precision.js';

export type Numbers = ArrayLike<number>;
export type Storage = 'f32' | 'bf16';

/** Operands of linear and its gradients: x[T,K], w[N,K], the LoRA pair a[r,K], b[N,r], and the gradient dy[T,N]. */
export interface Problem {
  readonly T: number;
  readonly N: number;
  readonly K: number;
  readonly r: number;
  readonly x: Numbers;
  readonly w: Numbers;
  readonly bias?: Numbers | undefined;
  readonly a: Numbers;
  readonly b: Numbers;
  readonly dy: Numbers;
  readonly scale: number;
  readonly dropout: number;
  readonly rowIds: Numbers;
  readonly positions: Numbers;
}

export const KEY = [0xdeadbeef, 12345] as const;

/** a[m,k]·b[n,k]ᵀ, summed in order of k. */
export function product(a: Numbers, b: Numbers, m: number, n: number, k: number, p: Precision): number[] {
  const [left, right] = [Float64Array.from(a), Float64Array.from(b)];
  // The same loop twice: a call of one function or another for each term takes five times as long.
  const rounded = (i: number, j: number) => {
    let sum = 0;
    for (let d = 0; d < k; d++) sum = Math.fround(sum + Math.fround(left[i + d]! * right[j + d]!));
    return sum;
  };
  const unrounded = (i: number, j: number) => {
    let sum = 0;
    for (let d = 0; d < k; d++) sum += left[i + d]! * right[j + d]!;
    return sum;
  };
  const byStep = (i: number, j: number, { depth, add }: NonNullable<Precision['step']>) => {
    let sum = 0;
    const products = new Float64Array(depth);
    for (let d = 0; d < k; d += depth) {
      for (let e = 0; e < depth; e++) products[e] = d + e < k ? left[i + d + e]! * right[j + d + e]! : 0;
      sum = add(sum, products);
    }
    return sum;
  };
  const one = p.sum === Math.fround ? rounded : unrounded;
  return Array.from({ length: m * n }, (_, at) => {
    const [i, j] = [Math.floor(at / n) * k, (at % n) * k];
    return p.step ? byStep(i, j, p.step) : one(i, j);
  });
}

export function transposed(a: Numbers, rows: number, columns: number): number[] {
  return Array.from({ length: rows * columns }, (_, i) => a[(i % rows) * columns + Math.floor(i / rows)]!);
}

/** How far dw may be on tensor cores: a sum of T products in f32. */
export function dwBound({ x, dy, T, N, K }: Problem): number {
  return truncationBound(T, largestPartialSum(transposed(dy, T, N), transposed(x, T, K), T));
}

/** 0 or 1/(1 - dropout) for every element of x, one Philox block for four neighbouring k. */
export function mask({ T, K, dropout, rowIds, positions }: Problem): number[] {
  const factors: number[] = [];
  for (let t = 0; t < T; t++) {
    for (let k = 0; k < K; k += 4) {
      const block = philox4x32([k / 4, positions[t]!, rowIds[t]!, 0], KEY);
      for (const word of block.slice(0, K - k)) {
        factors.push((word >>> 8) / 2 ** 24 >= Math.fround(dropout) ? 1 / (1 - dropout) : 0);
      }
    }
  }
  return factors;
}

/** Every result of the family for one problem, in the given arithmetic: each product is written to memory once. */
export function reference(problem: Problem, p: Precision) {
  const { T, N, K, r, scale, bias } = problem;
  const of = (values: Numbers) => Array.from(values, p.store);
  const [w, a, b] = [of(problem.w), of(problem.a), of(problem.b)];
  const { x, dy } = problem;
  const factors = mask(problem);
  const dropped = Array.from(x, (value, i) => p.store(value * factors[i]!));
  const u = product(dropped, a, T, r, K, p);
  const low = product(of(u), b, T, N, r, p);
  const y = product(x, w, T, N, K, p).map((value, i) =>
    p.store(p.store(value) + p.store(scale * p.store(low[i]!)) + (bias?.[i % N] ?? 0)),
  );
  const v = product(dy, transposed(b, N, r), T, r, N, p).map((value) => scale * value);
  const through = product(of(v), transposed(a, r, K), T, K, r, p);
  const dx = product(dy, transposed(w, N, K), T, K, N, p).map((value, i) =>
    p.store(p.store(value) + p.store(factors[i]! * p.store(through[i]!))),
  );
  const columns = (values: Numbers, count: number) => transposed(values, T, count);
  const da = product(columns(of(v), r), columns(dropped, K), r, K, T, p);
  const db = product(columns(dy, N), columns(of(u), r), N, r, T, p).map((value) => scale * value);
  const dw = product(columns(dy, N), columns(x, K), N, K, T, p);
  const dbias = product(columns(dy, N), new Array<number>(T).fill(1), N, 1, T, p);
  return { y, u, dx, v, da, db, dw, dbias };
}

/** Twice the error of the naive program, plus one step of the largest value, since few elements may be exact by luck. */
export function tolerance(low: Numbers, exact: Numbers, dtype: Storage): number {
  let worst = 0;
  let largest = 0;
  for (let i = 0; i < exact.length; i++) {
    worst = Math.max(worst, Math.abs(low[i]! - exact[i]!));
    largest = Math.max(largest, Math.abs(exact[i]!));
  }
  const step = dtype === 'f32' ? 2 ** -23 : exact.length < 50 ? 2 ** -8 : 0;
  return 2 * worst + step * largest;
}
