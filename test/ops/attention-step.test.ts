import { afterAll, describe, expect, it } from 'vitest';
import type { Parameter } from '../../src/autograd/parameters.js';
import {
  attentionPaged,
  attentionStep,
  cacheWrite,
  PAGE_TOKENS,
  pageElements,
  rotateWrite,
} from '../../src/ops/cache.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { isas, onGpu, openTest } from './devices.js';
import { random } from './numbers.js';
import { stored } from './precision.js';

interface Shape {
  readonly dtype: 'f32' | 'bf16';
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly normed?: boolean;
  readonly window?: number;
}

const shapes: readonly Shape[] = [
  { dtype: 'bf16', heads: 14, kvHeads: 2, headDim: 64 },
  { dtype: 'bf16', heads: 4, kvHeads: 2, headDim: 128, normed: true },
  { dtype: 'bf16', heads: 4, kvHeads: 2, headDim: 128, window: 70 },
  { dtype: 'bf16', heads: 20, kvHeads: 1, headDim: 40, normed: true, window: 600 },
  { dtype: 'bf16', heads: 2, kvHeads: 2, headDim: 8 },
  { dtype: 'bf16', heads: 2, kvHeads: 1, headDim: 20, normed: true },
  { dtype: 'f32', heads: 3, kvHeads: 1, headDim: 24, normed: true },
];

/** Tokens of each row with its new one: none, the first, at both sides of a page, of a run of keys and of a split. */
const LENGTHS = [1, 0, 64, 65, 700, 128, 129, 512, 513];
const [POSITIONS, EPS] = [1024, 1e-6];

describe.each(isas)('attention_step on %s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  /** What a step needs, on pages of which the last one of each row is not full; what was not written is NaN. */
  function prepared(on: Device, { dtype, heads, kvHeads, headDim, normed }: Shape, lengths = LENGTHS) {
    const of = (rows: number, count: number, seed: number) =>
      on.tensor(stored(random(rows * count * headDim, seed), dtype), [rows, count * headDim], dtype);
    const counts = lengths.map((length) => Math.ceil(length / PAGE_TOKENS));
    const held = counts.reduce((a, b) => a + b, 0);
    let free = held;
    const tables = counts.map((count) => Array.from({ length: count }, () => --free));
    const cache = on.empty([held, pageElements(kvHeads, headDim)], dtype);
    on.ops.fill({ x: cache, value: Number.NaN });
    const slotOf = (row: number, t: number) =>
      (tables[row]![Math.floor(t / PAGE_TOKENS)] as number) * PAGE_TOKENS + (t % PAGE_TOKENS);
    const before = lengths.flatMap((length, row) =>
      Array.from({ length: Math.max(length - 1, 0) }, (_, t) => slotOf(row, t)),
    );
    cacheWrite(of(before.length, kvHeads, 1), of(before.length, kvHeads, 2), cache, {
      slots: on.tensor(Int32Array.from(before)),
      headDim,
    });
    const width = Math.max(...counts);
    const pages = tables.flatMap((own) => Array.from({ length: width }, (_, i) => own[i] ?? -1));
    const table = (seed: number) =>
      on.tensor(random((POSITIONS * headDim) / 2, seed), [POSITIONS, headDim / 2]);
    const weight = (seed: number) => ({ value: on.tensor(random(headDim, seed), [headDim]) }) as Parameter;
    const R = lengths.length;
    return {
      cache,
      q: of(R, heads, 3),
      k: of(R, kvHeads, 4),
      v: of(R, kvHeads, 5),
      slots: on.tensor(Int32Array.from(lengths, (length, row) => (length ? slotOf(row, length - 1) : -1))),
      rotary: {
        cos: table(6),
        sin: table(7),
        positions: on.tensor(Int32Array.from(lengths, (length) => Math.max(length - 1, 0))),
      },
      norms: normed ? { q: weight(8), k: weight(9), eps: EPS } : undefined,
      pages: on.tensor(Int32Array.from(pages), [R, width]),
      lengths: on.tensor(Int32Array.from(lengths)),
      queryOffsets: on.tensor(Int32Array.from({ length: R + 1 }, (_, r) => r)),
    };
  }

  it.each(shapes)('has the bits of cache_write and attention_paged: %j', async (shape) => {
    const { headDim, window } = shape;
    const results = async (step: boolean) => {
      const { q, k, v, cache, slots, rotary, norms, ...places } = prepared(device, shape);
      const o = step
        ? attentionStep(q, k, v, cache, { headDim, window, rotary, norms, ...places })
        : attentionPaged(rotateWrite(q, k, v, cache, { slots, headDim, rotary, norms }), cache, {
            headDim,
            window,
            ...places,
          });
      // The comparison of NaN as numbers would take any two for the same.
      const bits = async (t: Tensor) => new Uint32Array((await t.readFloats()).buffer);
      return { o: await o.readFloats(), bits: await bits(o), cache: await bits(cache) };
    };
    const [apart, joined] = [await results(false), await results(true)];
    expect(joined.bits).toEqual(apart.bits);
    expect(joined.cache).toEqual(apart.cache);
    expect(joined.o.every(Number.isFinite)).toBe(true);
    const row = shape.heads * headDim;
    expect(joined.o.subarray(row, 2 * row).every((x) => x === 0)).toBe(true);
    expect(joined.o.subarray(4 * row, 5 * row).some((x) => x !== 0)).toBe(true);
  });

  it('is one launch on tensor cores, two on the CPU, and accepts 0 rows', async () => {
    const shape = shapes[0] as Shape;
    const { q, k, v, cache, rotary, pages, lengths } = prepared(device, shape);
    await device.synchronize();
    const before = device.stats().launches;
    attentionStep(q, k, v, cache, { headDim: shape.headDim, rotary, pages, lengths });
    await device.synchronize();
    expect(device.stats().launches - before).toBe(onGpu(isa) ? 1 : 2);
    const none = (t: Tensor) => device.empty([0, t.shape[1] as number], 'bf16');
    const o = attentionStep(none(q), none(k), none(v), cache, {
      headDim: shape.headDim,
      rotary,
      pages: device.empty([0, 1], 'i32'),
      lengths: device.empty([0], 'i32'),
    });
    expect(await o.readFloats()).toHaveLength(0);
  });

  it.each<[string, { dtype?: 'bf16' | 'f32'; lengths?: number[]; pages?: number[]; positions?: number }]>([
    ['attention_step: lengths[0] is 129, outside 0..128', { lengths: [129] }],
    ['attention_step: lengths[0] is -1, outside 0..128', { lengths: [-1] }],
    ['attention_step: lengths[0] is 70, outside 0..69', { positions: 69 }],
    ['attention_step: lengths[0] is 129, outside 0..69', { positions: 69, lengths: [129], pages: [0, 9] }],
    ['attention_step: pages[0, 1] is 4, outside 0..3', { pages: [0, 4] }],
    ['attention_step: pages[0, 1] is -1, outside 0..3', { pages: [0, -1] }],
    ['attention_step: pages[0, 0] is 9, outside 0..3', { pages: [9, 1] }],
  ])('refuses %s', async (message, { lengths = [70], pages = [0, 1], positions = 300 }) => {
    for (const dtype of ['bf16', 'f32'] as const) {
      const other = openTest(isa);
      const one = (heads: number) => other.zeros([1, heads * 8], dtype);
      const table = other.zeros([positions, 4]);
      attentionStep(one(2), one(1), one(1), other.zeros([4, pageElements(1, 8)], dtype), {
        headDim: 8,
        rotary: { cos: table, sin: table, positions: other.tensor(Int32Array.of(0)) },
        pages: other.tensor(Int32Array.from(pages), [1, 2]),
        lengths: other.tensor(Int32Array.from(lengths)),
      });
      await expect(other.synchronize()).rejects.toThrow(message);
      other.dispose();
    }
  });

  it('refuses tables and heads that do not fit', async () => {
    for (const [change, message] of [
      [{ half: 3 }, 'attention_step: head size 8 needs tables of width 4 with two halves, got 3'],
      [{ kvHeads: 1 }, "attention_step: k has 1 heads, the cache's pages hold 2"],
      [{ heads: 3 }, 'attention_step: 3 query heads cannot share 2 KV heads evenly'],
    ] as const) {
      const {
        half = 4,
        kvHeads = 2,
        heads = 4,
      } = change as { half?: number; kvHeads?: number; heads?: number };
      const other = openTest(isa);
      const table = other.zeros([9, half]);
      attentionStep(
        other.zeros([1, heads * 8]),
        other.zeros([1, kvHeads * 8]),
        other.zeros([1, kvHeads * 8]),
        other.zeros([4, pageElements(2, 8)]),
        {
          headDim: 8,
          rotary: { cos: table, sin: table, positions: other.tensor(Int32Array.of(0)) },
          pages: other.tensor(Int32Array.of(0), [1, 1]),
          lengths: other.tensor(Int32Array.of(3)),
        },
      );
      await expect(other.synchronize()).rejects.toThrow(message);
      other.dispose();
    }
  });

  it.skipIf(onGpu(isa))('gives the same bits at any thread count', async () => {
    const shape = shapes[0] as Shape;
    const outputs: Float32Array[] = [];
    for (const threads of [1, 3]) {
      const other = openTest(isa, { threads });
      const { q, k, v, cache, rotary, pages, lengths } = prepared(other, shape);
      const o = attentionStep(q, k, v, cache, { headDim: shape.headDim, rotary, pages, lengths });
      outputs.push(await o.readFloats());
      other.dispose();
    }
    expect(outputs[1]).toEqual(outputs[0]);
  });
});
