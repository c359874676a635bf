// References of the convolution and of the delta rule, on sequences with branches.
import type { Device } from '../../src/runtime/device.js';
import { maxDifference } from './numbers.js';
import type { Precision } from './precision.js';

export type Storage = 'f32' | 'bf16';
export type Numbers = ArrayLike<number>;

export const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** Sequences of a batch: their lengths, and the branch of every token. */
export interface Layout {
  readonly lengths: readonly number[];
  readonly branch?: readonly number[];
}

export const LAYOUTS: Readonly<Record<string, Layout>> = {
  'one token': { lengths: [1] },
  'ragged sequences': { lengths: [5, 0, 71, 2] },
  // A sequence that begins with a branch, two branches after one token, one that ends the sequence.
  branches: {
    lengths: [3, 14, 4],
    branch: [0, 0, 0, 1, 1, 0, 0, 2, 2, 3, 0, 4, 0, 0, 0, 5, 5, 0, 1, 2, 2],
  },
  // Trunks of 7 tokens and branches of 23, beyond the tokens between two states that a backward keeps.
  'long branches': {
    lengths: [2, 90],
    branch: Array.from({ length: 92 }, (_, t) =>
      (t + 28) % 30 < 7 || t < 2 ? 0 : 1 + Math.floor((t - 2) / 30),
    ),
  },
  // The 32nd token, whose state a backward keeps, lies in a branch, after which the trunk goes on.
  'a branch over a kept state': {
    lengths: [50],
    branch: Array.from({ length: 50 }, (_, t) => (t < 20 || t >= 40 ? 0 : 1)),
  },
};

/**
 * A trunk of 150 tokens, of which 64 and 128 begin chunks, and branches of 1, 3, 70 and 140 tokens after 5, 5, 63, 64, 64, 100 and
 * all of its tokens; then 64 tokens and a branch.
 */
export const CHUNKS: Required<Layout> = (() => {
  const runs = (...given: (readonly [branch: number, tokens: number])[]) =>
    given.flatMap(([branch, tokens]) => new Array<number>(tokens).fill(branch));
  const first = runs(
    [0, 5],
    [1, 1],
    [2, 3],
    [0, 58],
    [3, 3],
    [0, 1],
    [4, 140],
    [5, 1],
    [0, 36],
    [6, 70],
    [0, 50],
    [7, 3],
  );
  const second = runs([0, 64], [1, 3]);
  return { lengths: [first.length, second.length], branch: [...first, ...second] };
})();

/** A trunk of 110 tokens with branches of 90 and 110 after 70 and 75 of them. */
export const TWO_LONG: Layout = {
  lengths: [310],
  branch: Array.from({ length: 310 }, (_, t) => (t < 70 ? 0 : t < 160 ? 1 : t < 165 ? 0 : t < 275 ? 2 : 0)),
};

export const total = ({ lengths }: Layout) => lengths.reduce((sum, length) => sum + length, 0);
export const borders = ({ lengths }: Layout) =>
  [0, ...lengths].map((_, s) => total({ lengths: lengths.slice(0, s) }));

/** The token before each one: of its own branch, or else the last one of the trunk; −1: none. */
export function previous(layout: Layout): number[] {
  const before: number[] = [];
  const at = borders(layout);
  layout.lengths.forEach((length, s) => {
    for (let t = at[s] as number; t < (at[s] as number) + length; t++) {
      const own = layout.branch?.[t] ?? 0;
      let found = t - 1;
      while (found >= (at[s] as number) && ![own, 0].includes(layout.branch?.[found] ?? 0)) found--;
      before.push(found < (at[s] as number) ? -1 : found);
    }
  });
  return before;
}

/** y of the convolution, from the chain of tokens before each one. */
export function convolve(
  x: Numbers,
  weight: Numbers,
  layout: Layout,
  channels: number,
  p: Precision,
): number[] {
  const taps = weight.length / channels;
  const before = previous(layout);
  return Array.from({ length: total(layout) * channels }, (_, i) => {
    const [t, c] = [Math.floor(i / channels), i % channels];
    let z = 0;
    for (let j = 0, at = t; j < taps && at >= 0; j++, at = before[at] as number)
      z = p.sum(z + (weight[c * taps + taps - 1 - j] as number) * (x[at * channels + c] as number));
    return p.store(z * sigmoid(z));
  });
}

export interface Shape {
  readonly keyHeads: number;
  readonly heads: number;
  readonly keySize: number;
  readonly valueSize: number;
}

export const SHAPES: Readonly<Record<string, Shape>> = {
  groups: { keyHeads: 2, heads: 4, keySize: 8, valueSize: 5 },
  'widths beyond a block': { keyHeads: 1, heads: 1, keySize: 19, valueSize: 70 },
  'released sizes': { keyHeads: 1, heads: 2, keySize: 128, valueSize: 128 },
};

export const widthOf = ({ keyHeads, heads, keySize, valueSize }: Shape) =>
  2 * keyHeads * keySize + heads * valueSize;

export interface Inputs {
  readonly qkv: Numbers;
  readonly a: Numbers;
  readonly b: Numbers;
  readonly aLog: Numbers;
  readonly dtBias: Numbers;
}

/** o of the rule, by the recurrence of the paper on a state for each token. */
export function deltaRule(inputs: Inputs, layout: Layout, shape: Shape, p: Precision): number[] {
  const { qkv, a, b, aLog, dtBias } = inputs;
  const { keyHeads, heads, keySize: K, valueSize: V } = shape;
  const width = widthOf(shape);
  const before = previous(layout);
  const o = new Array<number>(total(layout) * heads * V).fill(0);
  const unit = (begin: number) => {
    const x = Array.from({ length: K }, (_, i) => qkv[begin + i] as number);
    const norm = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) + 1e-6);
    return x.map((value) => p.sum(value / norm));
  };
  for (let h = 0; h < heads; h++) {
    const states: Float64Array[] = [];
    const keyHead = Math.floor(h / (heads / keyHeads));
    for (let t = 0; t < total(layout); t++) {
      const q = unit(t * width + keyHead * K).map((value) => p.sum(value / Math.sqrt(K)));
      const k = unit(t * width + (keyHeads + keyHead) * K);
      const x = (a[t * heads + h] as number) + (dtBias[h] as number);
      const decay = Math.exp(-Math.exp(aLog[h] as number) * Math.log1p(Math.exp(x)));
      const beta = sigmoid(b[t * heads + h] as number);
      const old = before[t] === -1 ? new Float64Array(K * V) : (states[before[t] as number] as Float64Array);
      const state = old.map((value) => p.sum(decay * value));
      for (let v = 0; v < V; v++) {
        let memory = 0;
        for (let r = 0; r < K; r++) memory = p.sum(memory + (state[r * V + v] as number) * (k[r] as number));
        const value = qkv[t * width + 2 * keyHeads * K + h * V + v] as number;
        const delta = p.sum(beta * (value - memory));
        let out = 0;
        for (let r = 0; r < K; r++) {
          state[r * V + v] = p.sum((state[r * V + v] as number) + (k[r] as number) * delta);
          out = p.sum(out + (state[r * V + v] as number) * (q[r] as number));
        }
        o[(t * heads + h) * V + v] = p.store(out);
      }
      states[t] = state;
    }
  }
  return o;
}

/** Twice the error of a naive program in that storage, and a rounding of it more: that may be exact by luck. */
export const tolerance = (truth: Numbers, plain: Numbers, dtype: Storage) =>
  2 * maxDifference(truth, plain) + (dtype === 'bf16' ? 2 ** -9 : 2 ** -21);

/** d Σ dy·f(values) / d values[i], by central differences. */
export function slope(f: (values: number[]) => number[], values: Numbers, dy: Numbers, i: number): number {
  const step = 1e-5;
  const at = (moved: number) => {
    const copy = Array.from(values);
    copy[i] = (copy[i] as number) + moved;
    return f(copy).reduce((sum, y, j) => sum + y * (dy[j] as number), 0);
  };
  return (at(step) - at(-step)) / (2 * step);
}

/** Up to `most` places, spread over all. */
export const places = (count: number, most = 24) =>
  Array.from({ length: Math.min(count, most) }, (_, i) => Math.floor((i * count) / Math.min(count, most)));

export const layoutTensors = (on: Device, layout: Layout) => ({
  cu_seqlens: on.tensor(Int32Array.from(borders(layout))),
  branch: layout.branch && on.tensor(Int32Array.from(layout.branch)),
});
