import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expertWeight, stackWeight } from '../../src/ops/experts.js';
import { packQuantized, packWeight, unpackWeight } from '../../src/ops/gemm.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { KEY } from '../ops/gemm-reference.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { blockWeights, goldenWeights } from '../ops/quantized-weights.js';
import { gpus, skipped } from './gpu.js';

type Dtype = 'f32' | 'bf16';
type Values = Record<string, Float32Array>;
/** N outputs, K features, rank, dropout. */
type Shape = readonly [number, number, number, number];

/** Rows of each expert. */
const SIZES = [0, 5, 0, 70, 1, 130];
const E = SIZES.length;
const S = SIZES.reduce((sum, size) => sum + size);
/** Where each of so many rows begins, and the end of the last. */
function offsetsOf(sizes: readonly number[]): number[] {
  const offsets = [0];
  for (const size of sizes) offsets.push(offsets.at(-1)! + size);
  return offsets;
}
const begins = offsetsOf(SIZES);

describe.skipIf(gpus.length === 0)(`experts on cuda:0${skipped}`, () => {
  let gpu: Device;
  beforeAll(() => {
    gpu = openDevice('cuda:0');
  });
  afterAll(() => gpu.dispose());

  const values = ([N, K, r]: Shape, dtype: Dtype) => ({
    x: stored(random(S * K, 1), dtype),
    dy: stored(random(S * N, 2), dtype),
    w: stored(random(E * N * K, 3), dtype),
    a: random(E * r * K, 4),
    b: random(E * N * r, 5),
    dx: stored(random(S * K, 6), dtype),
    da: random(E * r * K, 7),
    db: random(E * N * r, 8),
    dw: random(E * N * K, 9),
  });
  type Given = ReturnType<typeof values>;

  /** What the four ops give for rows from..to and experts of `sizes`, the first of which is `first`; by the ops of one expert where not `grouped`. */
  const run = async (
    shape: Shape,
    dtype: Dtype,
    given: Given,
    from: number,
    sizes: readonly number[],
    first: number,
    grouped = true,
  ): Promise<Values> => {
    const [N, K, r, dropout] = shape;
    const rows = sizes.reduce((sum, size) => sum + size);
    const n = sizes.length;
    const made = gpu.scope(() => {
      const cut = (of: Float32Array, at: number, size: number[], as: Dtype) => {
        const length = size.reduce((product, extent) => product * extent);
        return gpu.tensor(of.slice(at, at + length), size, as);
      };
      const many = grouped ? [n] : [];
      const offsets = offsetsOf(sizes);
      const order = grouped ? { offsets: gpu.tensor(Int32Array.from(offsets), [n + 1], 'i32') } : {};
      const x = cut(given.x, from * K, [rows, K], dtype);
      const dy = cut(given.dy, from * N, [rows, N], dtype);
      const w = cut(given.w, first * N * K, [...many, N, K], dtype);
      const dx = cut(given.dx, from * K, [rows, K], dtype);
      const dw = cut(given.dw, first * N * K, [...many, N, K], 'f32');
      const ids = Int32Array.from({ length: rows }, (_, i) => (from + i) % 7);
      const pair =
        r === 0
          ? {}
          : {
              lora_a: cut(given.a, first * r * K, [...many, r, K], 'f32'),
              lora_b: cut(given.b, first * N * r, [...many, N, r], 'f32'),
            };
      const mask = {
        row_ids: gpu.tensor(ids, [rows], 'i32'),
        positions: gpu.tensor(
          ids.map((_, i) => from + i),
          [rows],
          'i32',
        ),
        scale: 0.5,
        dropout,
        key0: KEY[0],
        key1: KEY[1],
      };
      const asked = <T extends string>(name: T) =>
        (r === 0 ? {} : { [name]: gpu.empty([rows, r], 'f32') }) as Record<T, Tensor>;
      const op = gpu.ops as unknown as Record<string, (args: object) => Record<string, Tensor>>;
      const name = (one: string, all: string) => (grouped ? all : one);
      const forward = { x, w, ...order, ...pair, ...mask, ...asked('u') };
      const { y, u } = op[name('linear', 'linear_experts')]!(forward);
      const da = cut(given.da, first * r * K, [...many, r, K], 'f32');
      const db = cut(given.db, first * N * r, [...many, N, r], 'f32');
      const own = r > 0 && !grouped ? { x, u, da, db } : {};
      const backward = { dy, w, ...order, ...pair, ...own, ...mask, accumulate: true, dx, ...asked('v') };
      const { v } = op[name('linear_dx', 'linear_experts_dx')]!(backward);
      op[name('linear_dw', 'linear_experts_dw')]!({ x, dy, ...order, dw });
      if (r === 0) return { y: y!, dx, dw };
      if (grouped) op.linear_experts_lora_grads!({ x, dy, u, v, ...order, da, db, ...mask });
      return { y: y!, dx, dw, u: u!, v: v!, da, db };
    });
    const read: Values = {};
    for (const [key, tensor] of Object.entries(made)) {
      if (tensor) read[key] = await tensor.readFloats();
      tensor?.dispose();
    }
    return read;
  };

  /** Of results of all experts, expert e's. */
  const ofExpert = (all: Values, e: number): Values => {
    const cut = (key: string, of: Float32Array) => {
      const isOfRows = ['y', 'dx', 'u', 'v'].includes(key);
      const each = of.length / (isOfRows ? S : E);
      const begin = isOfRows ? begins[e]! : e;
      return of.slice(begin * each, (begin + (isOfRows ? SIZES[e]! : 1)) * each);
    };
    return Object.fromEntries(Object.entries(all).map(([key, of]) => [key, cut(key, of)]));
  };

  const shapes: Shape[] = [
    [136, 136, 8, 0],
    [40, 136, 0, 0],
    [136, 72, 16, 0.5],
    [19, 37, 5, 0.5],
    [21, 35, 3, 0],
  ];

  it.each(shapes)(
    'f32 has the bits of each expert alone: %d outputs, %d features, rank %d, dropout %d',
    async (...shape) => {
      const given = values(shape, 'f32');
      const all = await run(shape, 'f32', given, 0, SIZES, 0);
      for (let e = 0; e < E; e++) {
        const own = ofExpert(all, e);
        if (SIZES[e] === 0) {
          // Gradients of an expert without rows stay as they are.
          for (const key of ['dw', 'da', 'db'] as const)
            if (own[key]) expect(own[key]).toEqual(ofExpert(given, e)[key]);
          continue;
        }
        const alone = await run(shape, 'f32', given, begins[e]!, [SIZES[e]!], e, false);
        expect(own, `expert ${e}`).toEqual(alone);
      }
    },
  );

  it.each(shapes)(
    'bf16 rows have the same bits in any batch: %d outputs, %d features, rank %d, dropout %d',
    async (...shape) => {
      const given = values(shape, 'bf16');
      const all = await run(shape, 'bf16', given, 0, SIZES, 0);
      for (const e of SIZES.keys()) {
        if (SIZES[e] === 0) continue;
        const own = ofExpert(all, e);
        // Among experts without rows, in tiles for few; and the only one, in large tiles.
        const among = await run(
          shape,
          'bf16',
          given,
          begins[e]!,
          SIZES.map((size, other) => (other === e ? size : 0)),
          0,
        );
        const only = await run(shape, 'bf16', given, begins[e]!, [SIZES[e]!], e);
        for (const key of ['y', 'dx', 'u', 'v'])
          expect(among[key], `${key} of expert ${e}`).toEqual(own[key]);
        expect(only, `expert ${e}`).toEqual(own);
        const alone = await run(shape, 'bf16', given, begins[e]!, [SIZES[e]!], e, false);
        for (const [key, found] of Object.entries(own)) {
          const largest = alone[key]!.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
          expect(maxDifference(found, alone[key]!), `${key} of expert ${e}`).toBeLessThanOrEqual(
            largest * 2 ** -7,
          );
        }
      }
    },
  );

  it('a group reads the weight of its expert and, but for the first ones, a pair and a scale of its own', async () => {
    const [N, K, r] = [40, 72, 8];
    // Of three experts; more than a warp has lanes.
    const groups = [
      3,
      0,
      17,
      1,
      40,
      0,
      2,
      0,
      5,
      ...Array.from({ length: 36 }, (_, group) => (group * 5) % 4),
    ];
    const offsets = offsetsOf(groups);
    const rows = offsets.at(-1)!;
    const given = { x: random(rows * K, 1), w: random(3 * N * K, 2) };
    const bare = 3; // the first ones
    const paired = groups.length - bare;
    const pairs = { a: random(paired * r * K, 3), b: random(paired * N * r, 4) };
    const scales = Float32Array.from({ length: paired }, (_, pair) => (pair < paired / 2 ? 0.5 : 1.7));
    for (const dtype of ['f32', 'bf16'] as const) {
      const [all, ...alone] = gpu.scope(() => {
        const cut = (of: Float32Array, at: number, size: readonly number[], as: Dtype) => {
          const length = size.reduce((product, extent) => product * extent);
          return gpu.tensor(of.slice(at * length, (at + 1) * length), [...size], as);
        };
        const y = gpu.ops.linear_experts({
          x: gpu.tensor(given.x, [rows, K], dtype),
          w: gpu.tensor(given.w, [3, N, K], dtype),
          offsets: gpu.tensor(Int32Array.from(offsets)),
          lora_a: gpu.tensor(pairs.a, [paired, r, K]),
          lora_b: gpu.tensor(pairs.b, [paired, N, r]),
          scales: gpu.tensor(scales),
        }).y;
        const own = groups.map(
          (size, p) =>
            gpu.ops.linear_experts({
              x: gpu.tensor(given.x.slice(offsets[p]! * K, offsets[p + 1]! * K), [size, K], dtype),
              w: cut(given.w, p % 3, [1, N, K], dtype),
              offsets: gpu.tensor(Int32Array.of(0, size), [2], 'i32'),
              ...(p >= bare && {
                lora_a: cut(pairs.a, p - bare, [1, r, K], 'f32'),
                lora_b: cut(pairs.b, p - bare, [1, N, r], 'f32'),
                scale: scales[p - bare]!,
              }),
            }).y,
        );
        return [y, ...own];
      });
      const together = await all!.readFloats();
      for (const [p, y] of alone.entries())
        expect(await y.readFloats(), `group ${p}`).toEqual(
          together.slice(offsets[p]! * N, offsets[p + 1]! * N),
        );
      for (const y of [all!, ...alone]) y.dispose();
    }
  });

  const known = [...goldenWeights().weights, ...blockWeights()];
  it.each(known)('a quantised weight is multiplied like the one it stands for: $name', async (weight) => {
    const [N, K] = weight.shape;
    const rows = 9;
    for (const dtype of ['f32', 'bf16'] as const) {
      const results = gpu.scope(() => {
        const packed = packQuantized(gpu.tensor(weight.bytes), weight.format, weight.shape);
        const plain = packWeight(gpu.tensor(weight.values, weight.shape), dtype);
        const x = gpu.tensor(random(rows * K, 1), [rows, K], dtype);
        const dy = gpu.tensor(random(rows * N, 2), [rows, N], dtype);
        const offsets = gpu.tensor(Int32Array.of(0, 0, 7, rows), [4], 'i32');
        // Two groups of each expert: the first expert has rows in its second alone.
        const twice = gpu.tensor(Int32Array.of(0, 0, 4, 4, rows, rows, rows), [7], 'i32');
        const [own, twin] = [packed, plain].map((w) => {
          let stack: Tensor | undefined;
          for (const expert of [2, 0, 1]) stack = stackWeight(w, expert, 3, stack);
          return stack!;
        });
        const given = [own!, twin!].map((w) => [
          gpu.ops.linear_experts({ x, w, offsets }).y,
          gpu.ops.linear_experts({ x, w, offsets: twice }).y,
          gpu.ops.linear_experts_dx({ dy, w, offsets }).dx,
        ]);
        given[0]!.push(unpackWeight(expertWeight(own!, 2), 'f32'));
        return [...given, [unpackWeight(packed, 'f32')]].flat();
      });
      const [y, yTwice, dx, last, yPlain, yTwicePlain, dxPlain, values] = await Promise.all(
        results.map((of) => of.readFloats()),
      );
      expect(y).toEqual(yPlain);
      expect(yTwice).toEqual(yTwicePlain);
      expect(dx).toEqual(dxPlain);
      expect(last).toEqual(values);
      for (const tensor of results) tensor.dispose();
    }
  });
});
