import { afterAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { unlessEmulated } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Storage = 'f32' | 'bf16';
type Numbers = ArrayLike<number>;

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** Sequences of a batch: their lengths, and the branch of every token. */
interface Layout {
  readonly lengths: readonly number[];
  readonly branch?: readonly number[];
}

const LAYOUTS: Readonly<Record<string, Layout>> = {
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
const CHUNKS: Required<Layout> = (() => {
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
const TWO_LONG: Layout = {
  lengths: [310],
  branch: Array.from({ length: 310 }, (_, t) => (t < 70 ? 0 : t < 160 ? 1 : t < 165 ? 0 : t < 275 ? 2 : 0)),
};

const total = ({ lengths }: Layout) => lengths.reduce((sum, length) => sum + length, 0);
const borders = ({ lengths }: Layout) =>
  [0, ...lengths].map((_, s) => total({ lengths: lengths.slice(0, s) }));

/** The token before each one: of its own branch, or else the last one of the trunk; −1: none. */
function previous(layout: Layout): number[] {
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
function convolve(x: Numbers, weight: Numbers, layout: Layout, channels: number, p: Precision): number[] {
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

interface Shape {
  readonly keyHeads: number;
  readonly heads: number;
  readonly keySize: number;
  readonly valueSize: number;
}

const SHAPES: Readonly<Record<string, Shape>> = {
  groups: { keyHeads: 2, heads: 4, keySize: 8, valueSize: 5 },
  'widths beyond a block': { keyHeads: 1, heads: 1, keySize: 19, valueSize: 70 },
  'released sizes': { keyHeads: 1, heads: 2, keySize: 128, valueSize: 128 },
};

const widthOf = ({ keyHeads, heads, keySize, valueSize }: Shape) =>
  2 * keyHeads * keySize + heads * valueSize;

interface Inputs {
  readonly qkv: Numbers;
  readonly a: Numbers;
  readonly b: Numbers;
  readonly aLog: Numbers;
  readonly dtBias: Numbers;
}

/** o of the rule, by the recurrence of the paper on a state for each token. */
function deltaRule(inputs: Inputs, layout: Layout, shape: Shape, p: Precision): number[] {
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
const tolerance = (truth: Numbers, plain: Numbers, dtype: Storage) =>
  2 * maxDifference(truth, plain) + (dtype === 'bf16' ? 2 ** -9 : 2 ** -21);

/** d Σ dy·f(values) / d values[i], by central differences. */
function slope(f: (values: number[]) => number[], values: Numbers, dy: Numbers, i: number): number {
  const step = 1e-5;
  const at = (moved: number) => {
    const copy = Array.from(values);
    copy[i] = (copy[i] as number) + moved;
    return f(copy).reduce((sum, y, j) => sum + y * (dy[j] as number), 0);
  };
  return (at(step) - at(-step)) / (2 * step);
}

/** Up to `most` places, spread over all. */
const places = (count: number, most = 24) =>
  Array.from({ length: Math.min(count, most) }, (_, i) => Math.floor((i * count) / Math.min(count, most)));

describe.each(isas)('recurrence on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  const layoutTensors = (on: Device, layout: Layout) => ({
    cu_seqlens: on.tensor(Int32Array.from(borders(layout))),
    branch: layout.branch && on.tensor(Int32Array.from(layout.branch)),
  });

  describe.each(Object.entries(LAYOUTS))('%s', (_, layout) => {
    const tokens = total(layout);

    describe.each(['f32', 'bf16'] as const)('convolution in %s', (dtype) => {
      const [channels, taps] = [131, 4];
      const x = stored(random(tokens * channels, 3), dtype);
      const weight = random(channels * taps, 4);
      const dy = stored(random(tokens * channels, 5), dtype);
      const tensors = () => ({
        x: device.tensor(x, [tokens, channels], dtype),
        weight: device.tensor(weight, [channels, 1, taps]),
        ...layoutTensors(device, layout),
      });

      it('is the sum over the tokens before', async () => {
        const { y } = device.ops.causal_conv1d(tensors());
        const truth = convolve(x, weight, layout, channels, exact);
        const plain = convolve(x, weight, layout, channels, naive(dtype));
        expect(maxDifference(await y.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
      });

      it('has the gradients of finite differences', async () => {
        const dweight = device.zeros([channels, 1, taps]);
        const { dx } = device.ops.causal_conv1d_backward({
          ...tensors(),
          dy: device.tensor(dy, [tokens, channels], dtype),
          dweight,
        });
        const [found, foundWeight] = [await dx.readFloats(), await dweight.readFloats()];
        const bound = dtype === 'bf16' ? 2e-2 : 1e-4;
        for (const i of places(x.length)) {
          const wanted = slope((values) => convolve(values, weight, layout, channels, exact), x, dy, i);
          expect(Math.abs((found[i] as number) - wanted)).toBeLessThan(bound);
        }
        for (const i of places(weight.length)) {
          const wanted = slope((values) => convolve(x, values, layout, channels, exact), weight, dy, i);
          expect(Math.abs((foundWeight[i] as number) - wanted)).toBeLessThan(bound);
        }
      });
    });

    describe.each(Object.entries(SHAPES))('delta rule of %s', (name, shape) => {
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const width = widthOf(shape);
      const inputs = (dtype: Storage) => ({
        qkv: stored(random(tokens * width, 6), dtype),
        a: stored(random(tokens * heads, 7), dtype),
        b: stored(random(tokens * heads, 8), dtype),
        aLog: random(heads, 9),
        dtBias: random(heads, 10),
      });
      const tensors = ({ qkv, a, b, aLog, dtBias }: ReturnType<typeof inputs>, dtype: Storage) => ({
        qkv: device.tensor(qkv, [tokens, width], dtype),
        a: device.tensor(a, [tokens, heads], dtype),
        b: device.tensor(b, [tokens, heads], dtype),
        a_log: device.tensor(aLog),
        dt_bias: device.tensor(dtBias),
        ...layoutTensors(device, layout),
        G,
        K,
      });

      it.each(['f32', 'bf16'] as const)('is the recurrence in %s', async (dtype) => {
        const given = inputs(dtype);
        const { o } = device.ops.gated_delta_rule({ ...tensors(given, dtype), V });
        const truth = deltaRule(given, layout, shape, exact);
        const plain = deltaRule(given, layout, shape, naive(dtype));
        expect(maxDifference(await o.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
      });

      // Finite differences of the largest shape take a minute.
      it.skipIf(name === 'released sizes')('has the gradients of finite differences', async () => {
        const given = inputs('f32');
        const dy = random(tokens * heads * V, 11);
        const [da_log, ddt_bias] = [device.zeros([heads]), device.zeros([heads])];
        const { dqkv, da, db } = device.ops.gated_delta_rule_backward({
          ...tensors(given, 'f32'),
          do: device.tensor(dy, [tokens, heads, V]),
          da_log,
          ddt_bias,
        });
        const found = { qkv: dqkv, a: da, b: db, aLog: da_log, dtBias: ddt_bias };
        for (const [key, gradient] of Object.entries(found)) {
          const values = await gradient.readFloats();
          const of = given[key as keyof typeof given];
          for (const i of places(of.length, 10)) {
            const wanted = slope(
              (moved) => deltaRule({ ...given, [key]: moved }, layout, shape, exact),
              of,
              dy,
              i,
            );
            const error = Math.abs((values[i] as number) - wanted);
            expect(error, `${key}[${i}]`).toBeLessThan(1e-4 * Math.max(1, Math.abs(wanted)));
          }
        }
      });
    });
  });

  it.each([
    ['f32', 'groups'],
    ['f32', 'released sizes'],
    ['bf16', 'released sizes'],
  ] as const)(
    'queries and keys of zeros, and small ones, are divided by their norms: %s, %s',
    async (dtype, name) => {
      const shape = SHAPES[name] as Shape;
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const layout = LAYOUTS['ragged sequences'] as Layout;
      const [tokens, width] = [total(layout), widthOf(shape)];
      const qkv = stored(
        random(tokens * width, 41).map((x, i) => {
          const [t, c] = [Math.floor(i / width), i % width];
          return c < 2 * G * K ? x * ([1, 0, 1e-4][t % 3] as number) : x;
        }),
        dtype,
      );
      const [a, b] = [stored(random(tokens * heads, 42), dtype), stored(random(tokens * heads, 43), dtype)];
      const given = { qkv, a, b, aLog: random(heads, 44), dtBias: random(heads, 45) };
      const { o } = device.ops.gated_delta_rule({
        qkv: device.tensor(qkv, [tokens, width], dtype),
        a: device.tensor(a, [tokens, heads], dtype),
        b: device.tensor(b, [tokens, heads], dtype),
        a_log: device.tensor(given.aLog),
        dt_bias: device.tensor(given.dtBias),
        ...layoutTensors(device, layout),
        G,
        K,
        V,
      });
      const truth = deltaRule(given, layout, shape, exact);
      const plain = deltaRule(given, layout, shape, naive(dtype));
      expect(maxDifference(await o.readFloats(), truth)).toBeLessThan(tolerance(truth, plain, dtype));
    },
  );

  // Heads of the released sizes take another kernel in bf16, by chunks of 64 tokens on AMX and of 32 on AVX-512-BF16.
  it.each([
    ['f32', 'groups', LAYOUTS['long branches']],
    ['bf16', 'groups', LAYOUTS['long branches']],
    ['bf16', 'released sizes', LAYOUTS['long branches']],
    ['bf16', 'released sizes', CHUNKS],
  ] as const)(
    'computes branches bit by bit as sequences of their own in %s, %s',
    async (dtype, sizes, chosenLayout) => {
      const shape = SHAPES[sizes] as Shape;
      const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
      const [width, taps] = [widthOf(shape), 4];
      const layout = chosenLayout as Required<Layout>;
      const tokens = total(layout);
      const [x, a, b] = [
        stored(random(tokens * width, 21), dtype),
        stored(random(tokens * heads, 22), dtype),
        stored(random(tokens * heads, 23), dtype),
      ];
      const rows = (values: Numbers, size: number, chosen: readonly number[]) =>
        device.tensor(
          Float32Array.from(
            chosen.flatMap((t) => Array.from({ length: size }, (_, i) => values[t * size + i] as number)),
          ),
          [chosen.length, size],
          dtype,
        );
      const run = async (chosen: readonly number[], own: Layout) => {
        const { y } = device.ops.causal_conv1d({
          x: rows(x, width, chosen),
          weight: device.tensor(random(width * taps, 24), [width, 1, taps]),
          ...layoutTensors(device, own),
        });
        const { o } = device.ops.gated_delta_rule({
          qkv: y,
          a: rows(a, heads, chosen),
          b: rows(b, heads, chosen),
          a_log: device.tensor(random(heads, 25)),
          dt_bias: device.tensor(random(heads, 26)),
          ...layoutTensors(device, own),
          G,
          K,
          V,
        });
        return o.readFloats();
      };
      const all = Array.from({ length: tokens }, (_, t) => t);
      const found = await run(all, layout);
      const before = previous(layout);
      // The last token of every branch, and of every sequence.
      const leaves = all.filter(
        (t) => layout.branch[t] !== (layout.branch[t + 1] ?? 0) && layout.branch[t] !== 0,
      );
      for (const leaf of [
        ...leaves,
        ...borders(layout)
          .slice(1)
          .map((end) => end - 1),
      ]) {
        const path: number[] = [];
        for (let t = leaf; t >= 0; t = before[t] as number) path.unshift(t);
        const alone = await run(path, { lengths: [path.length] });
        const size = heads * V;
        const wanted = Float32Array.from(path.flatMap((t) => [...found.subarray(t * size, (t + 1) * size)]));
        expect(alone).toEqual(wanted);
      }
    },
  );

  describe('released sizes in bf16', () => {
    const shape: Shape = { ...(SHAPES['released sizes'] as Shape), keyHeads: 2, heads: 4 };
    const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
    const width = widthOf(shape);
    const numbers = (layout: Layout, repeats = 1, shift = 0) => {
      const tokens = total(layout);
      const of = (size: number, seed: number, moved = 0) => {
        const values = stored(
          random(tokens * size, seed).map((x) => x + moved),
          'bf16',
        );
        return Float32Array.from(
          Array(repeats)
            .fill([...values])
            .flat(),
        );
      };
      return { qkv: of(width, 31), a: of(heads, 32, shift), b: of(heads, 33), dy: of(heads * V, 34) };
    };
    const run = async (on: Device, layout: Layout, dtype: Storage, repeats = 1, shift = 0) => {
      const tokens = total(layout) * repeats;
      const { qkv, a, b, dy } = numbers(layout, repeats, shift);
      const many: Layout = {
        lengths: Array(repeats).fill(layout.lengths).flat(),
        ...(layout.branch ? { branch: Array(repeats).fill(layout.branch).flat() } : {}),
      };
      const given = {
        qkv: on.tensor(qkv, [tokens, width], dtype),
        a: on.tensor(a, [tokens, heads], dtype),
        b: on.tensor(b, [tokens, heads], dtype),
        a_log: on.tensor(random(heads, 35)),
        dt_bias: on.tensor(random(heads, 36)),
        ...layoutTensors(on, many),
        G,
        K,
      };
      const [da_log, ddt_bias] = [on.zeros([heads]), on.zeros([heads])];
      const { o } = on.ops.gated_delta_rule({ ...given, V });
      const { dqkv, da, db } = on.ops.gated_delta_rule_backward({
        ...given,
        do: on.tensor(dy, [tokens, heads, V], dtype),
        da_log,
        ddt_bias,
      });
      const read = { o, dqkv, da, db, da_log, ddt_bias };
      const found: Record<string, Float32Array> = {};
      for (const [name, tensor] of Object.entries(read)) found[name] = await tensor.readFloats();
      return found;
    };

    it.each([
      ...Object.entries(LAYOUTS),
      ['ragged chunks', { lengths: [200, 64, 1, 129] }],
      ['branches over chunks', CHUNKS],
      // Gates that stay open, so that states reach through chunks.
      ['branches over chunks that begin in one', TWO_LONG, -5],
      ['gates that hardly close', { lengths: [70] }, -15],
    ] as [string, Layout, number?][])(
      'has the outputs and gradients of f32, %s',
      async (_, layout, shift) => {
        const [found, wanted] = [
          await run(device, layout, 'bf16', 1, shift),
          await run(device, layout, 'f32', 1, shift),
        ];
        for (const [name, values] of Object.entries(found)) {
          const truth = wanted[name] as Float32Array;
          const largest = truth.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
          // Two roundings to bf16 of the largest; sums over all tokens have many. A state of zeros gives exact zeros.
          const bound = (name === 'da_log' || name === 'ddt_bias' ? 2 ** -6 : 2 ** -7) * largest;
          expect(maxDifference(values, truth), name).toBeLessThanOrEqual(bound);
          // Of all of them together o and db have their own rounding alone, the others twice as much.
          const squares = (of: (i: number) => number) => truth.reduce((sum, _, i) => sum + of(i) ** 2, 0);
          const error = squares((i) => (values[i] as number) - (truth[i] as number));
          const share = ['o', 'db'].includes(name) ? 2 ** -9 : 2 ** -8;
          expect(Math.sqrt(error), name).toBeLessThanOrEqual(
            share * Math.sqrt(squares((i) => truth[i] as number)),
          );
        }
      },
    );

    it.each([
      // Beyond a chunk of 64 tokens.
      ['sequences', { lengths: [unlessEmulated(isa, 150, 70)] }],
      ['branches', CHUNKS],
    ] as [string, Layout][])(
      'has the same bits alone, in a batch and in any number of threads, %s',
      async (_, layout) => {
        const alone = await run(device, layout, 'bf16');
        const single = openTest(isa, { threads: 1 });
        // A GPU has no threads, and the emulator takes minutes for each of them.
        for (const on of onGpu(isa) ? [device] : [device, single]) {
          const many = await run(on, layout, 'bf16', 3);
          for (const name of ['o', 'dqkv', 'da', 'db']) {
            const [one, all] = [alone[name] as Float32Array, many[name] as Float32Array];
            for (let i = 0; i < 3; i++)
              expect(all.subarray(i * one.length, (i + 1) * one.length)).toEqual(one);
          }
        }
        single.dispose();
      },
    );
  });

  it('gives a token the same bits alone, in a batch, in pieces from kept states and in any number of threads', async () => {
    const shape = SHAPES.groups as Shape;
    const { heads, valueSize: V, keyHeads: G, keySize: K } = shape;
    const [width, taps, length] = [widthOf(shape), 4, 70];
    const x = random(length * width, 12);
    const [a, b] = [random(length * heads, 13), random(length * heads, 14)];
    const run = async (on: Device, repeats: number, cuts: readonly number[] = [length]) => {
      // What earlier sequences left there.
      const states = {
        conv: on.tensor(random(3 * (taps - 1) * width, 18), [3, taps - 1, width]),
        delta: on.tensor(random(3 * heads * K * V, 19), [3, heads, K, V]),
      };
      const out: number[] = [];
      for (let i = 0, from = 0; i < cuts.length; from = cuts[i++] as number) {
        const to = cuts[i] as number;
        const own = (values: Float32Array, size: number) =>
          on.tensor(
            Float32Array.from(
              Array(repeats)
                .fill([...values.subarray(from * size, to * size)])
                .flat(),
            ),
            [repeats * (to - from), size],
          );
        const cu_seqlens = on.tensor(Int32Array.from({ length: repeats + 1 }, (_, s) => s * (to - from)));
        const kept = {
          slots: on.tensor(Int32Array.from({ length: repeats }, (_, s) => 2 - s)),
          lengths: on.tensor(Int32Array.from({ length: repeats }, () => to)),
        };
        const continued = cuts.length > 1;
        const { y } = on.ops.causal_conv1d({
          x: own(x, width),
          weight: on.tensor(random(width * taps, 15), [width, 1, taps]),
          cu_seqlens,
          ...(continued ? { ...kept, state: states.conv } : {}),
        });
        const { o } = on.ops.gated_delta_rule({
          qkv: y,
          a: own(a, heads),
          b: own(b, heads),
          a_log: on.tensor(random(heads, 16)),
          dt_bias: on.tensor(random(heads, 17)),
          cu_seqlens,
          ...(continued ? { ...kept, state: states.delta } : {}),
          G,
          K,
          V,
        });
        const values = await o.readFloats();
        const each = (to - from) * heads * V;
        for (let s = 1; s < repeats; s++)
          expect(values.subarray(s * each, (s + 1) * each)).toEqual(values.subarray(0, each));
        out.push(...values.subarray(0, each));
      }
      return out;
    };
    const alone = await run(device, 1);
    expect(await run(device, 3)).toEqual(alone);
    expect(await run(device, 2, [1, 2, 40, 41, 70])).toEqual(alone);
    const single = openTest(isa, { threads: 1 });
    expect(await run(single, 3)).toEqual(alone);
    single.dispose();
  });

  it.each([
    [{ branch: [0, 1, 0, 1] }, 'branch[3] is 1 after branch 1'],
    [{ cu: [0, 3, 2, 4] }, 'cu_seqlens[2] is 2, below the 3 before it'],
    [{ slots: [3], lengths: [4] }, 'slots[0] is 3, outside -1..1'],
    [{ slots: [1], lengths: [2] }, 'lengths[0] is 2, below the'],
  ])(
    'refuses %o',
    async (given: { branch?: number[]; cu?: number[]; slots?: number[]; lengths?: number[] }, message) => {
      const other = openTest(isa);
      other.ops.causal_conv1d({
        x: other.zeros([4, 2]),
        weight: other.zeros([2, 1, 3]),
        cu_seqlens: other.tensor(Int32Array.from(given.cu ?? [0, 4])),
        branch: given.branch && other.tensor(Int32Array.from(given.branch)),
        ...(given.slots && given.lengths
          ? {
              state: other.zeros([2, 2, 2]),
              slots: other.tensor(Int32Array.from(given.slots)),
              lengths: other.tensor(Int32Array.from(given.lengths)),
            }
          : {}),
      });
      await expect(other.synchronize()).rejects.toThrow(message);
      other.dispose();
    },
  );

  it('splits rows in halves and joins them, and gates by a sigmoid', async () => {
    const x = random(6 * 10, 18);
    const { first, second } = device.ops.split_halves({ x: device.tensor(x, [6, 10]), D: 5 });
    const [left, right] = [await first.readFloats(), await second.readFloats()];
    expect([...left.slice(5, 10), ...right.slice(5, 10)]).toEqual([...x.slice(10, 20)]);
    expect(await device.ops.join_halves({ first, second, N: 10 }).y.readFloats()).toEqual(x);
    const dy = device.tensor(random(30, 19), [6, 5]);
    const values = await device.ops.sigmoid_gate({ gate: first, x: second }).y.readFloats();
    expect(
      maxDifference(
        values,
        left.map((g, i) => sigmoid(g) * (right[i] as number)),
      ),
    ).toBeLessThan(2e-7);
    const { dgate, dx } = device.ops.sigmoid_gate_backward({ dy, gate: first, x: second });
    const d = await dy.readFloats();
    const wanted = left.map(
      (g, i) => (d[i] as number) * (right[i] as number) * sigmoid(g) * (1 - sigmoid(g)),
    );
    expect(maxDifference(await dgate.readFloats(), wanted)).toBeLessThan(2e-7);
    expect(
      maxDifference(
        await dx.readFloats(),
        left.map((g, i) => (d[i] as number) * sigmoid(g)),
      ),
    ).toBeLessThan(2e-7);
  });
});
