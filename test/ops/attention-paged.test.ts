import { afterAll, describe, expect, it } from 'vitest';
import type { Parameter } from '../../src/autograd/parameters.js';
import { attention } from '../../src/ops/attention.js';
import {
  attentionPaged,
  cacheCopy,
  cacheWrite,
  PAGE_TOKENS,
  pageElements,
  rotateWrite,
} from '../../src/ops/cache.js';
import { rmsNorm } from '../../src/ops/norm.js';
import { rope } from '../../src/ops/rope.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { exact, naive, type Precision, stored } from './precision.js';

type Storage = 'f32' | 'bf16';

interface Heads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** One sequence: all its keys are in the cache, and its last `queries` tokens are the queries. */
interface Row {
  readonly length: number;
  readonly queries: number;
}

interface Case extends Heads {
  readonly rows: readonly Row[];
  readonly window?: number;
}

interface Values {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

const width = (heads: number, { headDim }: Heads) => heads * headDim;
const total = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);
const offsets = (counts: readonly number[]) =>
  Int32Array.from([0, ...counts.map((_, i) => total(counts.slice(0, i + 1)))]);

/** q of every query of the rows, k and v of every key, row after row. */
function valuesOf(c: Case, dtype: Storage, seed = 1): Values {
  const of = (tokens: number, heads: number, part: number) =>
    stored(
      random(tokens * width(heads, c), 10 * seed + part).map((x) => 2 * x),
      dtype,
    );
  const keys = total(c.rows.map(({ length }) => length));
  return {
    q: of(total(c.rows.map(({ queries }) => queries)), c.heads, 1),
    k: of(keys, c.kvHeads, 2),
    v: of(keys, c.kvHeads, 3),
  };
}

/** One query after the other; `p` rounds every tensor that a plain program would store. */
function reference(c: Case, { q, k, v }: Values, { store, sum }: Precision): Float64Array {
  const { heads, kvHeads, headDim } = c;
  const scale = Math.fround(headDim ** -0.5);
  const out = new Float64Array(q.length);
  let query = 0;
  let firstKey = 0;
  for (const { length, queries } of c.rows) {
    for (let j = length - queries; j < length; j++, query++) {
      const first = c.window ? Math.max(0, j - c.window + 1) : 0;
      const keys = Array.from({ length: j + 1 - first }, (_, i) => firstKey + first + i);
      for (let h = 0; h < heads; h++) {
        const at = (query * heads + h) * headDim;
        const kv = (key: number) => (key * kvHeads + Math.floor(h / (heads / kvHeads))) * headDim;
        const scores = keys.map((key) => {
          let dot = 0;
          for (let d = 0; d < headDim; d++) dot = sum(dot + q[at + d]! * k[kv(key) + d]!);
          return store(store(dot) * scale);
        });
        const top = Math.max(...scores);
        const mass = scores.reduce((a, x) => sum(a + sum(Math.exp(sum(x - top)))), 0);
        const p = scores.map((x) => store(Math.exp(sum(x - top)) / mass));
        for (let d = 0; d < headDim; d++)
          out[at + d] = store(keys.reduce((a, key, n) => sum(a + p[n]! * v[kv(key) + d]!), 0));
      }
    }
    firstKey += length;
  }
  return out;
}

/** A cache whose unused places hold NaN, and its page table in a mixed order. */
class Cache {
  readonly tensor;
  readonly pages: number[][];

  constructor(
    private readonly device: Device,
    private readonly c: Case,
    dtype: Storage,
  ) {
    const counts = c.rows.map(({ length }) => Math.ceil(length / PAGE_TOKENS));
    const held = total(counts) + 1;
    this.tensor = device.empty([held, pageElements(c.kvHeads, c.headDim)], dtype);
    device.ops.fill({ x: this.tensor, value: Number.NaN });
    let dealt = 0;
    const step = [7, 5, 3, 2].find((n) => held % n !== 0) ?? 1;
    this.pages = counts.map((count) => Array.from({ length: count }, () => (step * dealt++ + 1) % held));
  }

  /** Pages of all rows, padded by −1. */
  table(pages: readonly (readonly number[])[] = this.pages) {
    const max = Math.max(1, ...pages.map((row) => row.length));
    const table = pages.flatMap((row) => Array.from({ length: max }, (_, i) => row[i] ?? -1));
    return this.device.tensor(Int32Array.from(table), [pages.length, max]);
  }

  write({ k, v }: Values, dtype: Storage): void {
    const slots = this.c.rows.flatMap(({ length }, r) =>
      Array.from(
        { length },
        (_, j) => this.pages[r]![Math.floor(j / PAGE_TOKENS)]! * PAGE_TOKENS + (j % PAGE_TOKENS),
      ),
    );
    const { device, c } = this;
    const of = (x: Float32Array) => device.tensor(x, [slots.length, width(c.kvHeads, c)], dtype);
    cacheWrite(of(k), of(v), this.tensor, {
      slots: device.tensor(Int32Array.from(slots)),
      headDim: c.headDim,
    });
  }
}

async function run(device: Device, c: Case, values: Values, dtype: Storage): Promise<Float32Array> {
  const o = device.scope(() => {
    const cache = new Cache(device, c, dtype);
    cache.write(values, dtype);
    const queries = c.rows.map((row) => row.queries);
    return attentionPaged(device.tensor(values.q, [total(queries), width(c.heads, c)], dtype), cache.tensor, {
      headDim: c.headDim,
      queryOffsets: device.tensor(offsets(queries)),
      pages: cache.table(),
      lengths: device.tensor(Int32Array.from(c.rows, ({ length }) => length)),
      window: c.window,
    });
  });
  const read = await o.readFloats();
  o.dispose();
  return read;
}

const cases: Record<string, Case> = {
  'one token': { rows: [{ length: 1, queries: 1 }], heads: 2, kvHeads: 1, headDim: 8 },
  'decoding rows beside a prompt': {
    rows: [
      { length: 70, queries: 1 },
      { length: 64, queries: 1 },
      { length: 150, queries: 150 },
      { length: 129, queries: 30 },
      { length: 65, queries: 1 },
    ],
    heads: 4,
    kvHeads: 2,
    headDim: 16,
  },
  'rows without queries, and without keys': {
    rows: [
      { length: 0, queries: 0 },
      { length: 10, queries: 0 },
      { length: 10, queries: 2 },
      { length: 0, queries: 0 },
    ],
    heads: 2,
    kvHeads: 2,
    headDim: 8,
  },
  'seven heads to a group': {
    rows: [
      { length: 100, queries: 1 },
      { length: 90, queries: 20 },
    ],
    heads: 14,
    kvHeads: 2,
    headDim: 64,
  },
  'past a split of the GPU': { rows: [{ length: 1100, queries: 2 }], heads: 2, kvHeads: 1, headDim: 16 },
  'head size 80': { rows: [{ length: 77, queries: 3 }], heads: 2, kvHeads: 1, headDim: 80 },
  'head size 128': { rows: [{ length: 77, queries: 3 }], heads: 4, kvHeads: 1, headDim: 128 },
  'head size 300': { rows: [{ length: 20, queries: 2 }], heads: 1, kvHeads: 1, headDim: 300 },
  'odd head sizes': { rows: [{ length: 67, queries: 5 }], heads: 3, kvHeads: 3, headDim: 13 },
  'head size 1': { rows: [{ length: 67, queries: 2 }], heads: 2, kvHeads: 1, headDim: 1 },
  'a window': {
    rows: [
      { length: 200, queries: 1 },
      { length: 200, queries: 90 },
      { length: 20, queries: 20 },
    ],
    heads: 2,
    kvHeads: 1,
    headDim: 24,
    window: 37,
  },
  'a window of one': { rows: [{ length: 66, queries: 3 }], heads: 2, kvHeads: 2, headDim: 8, window: 1 },
};

describe.each(isas)('attention_paged on %s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  describe.each(['f32', 'bf16'] as const)('%s', (dtype) => {
    it.each(Object.keys(cases))('%s', async (name) => {
      const c = cases[name]!;
      const values = valuesOf(c, dtype);
      const want = reference(c, values, exact);
      const low = reference(c, values, naive(dtype));
      const step = 2 * (dtype === 'bf16' ? 2 ** -8 : 2 ** -21);
      const got = await run(device, c, values, dtype);
      expect(maxDifference(got, want)).toBeLessThanOrEqual(2 * maxDifference(low, want) + step);
    });

    // Cached tokens must have the bits of the training forward.
    it.skipIf(onGpu(isa)).each([
      { heads: 2, kvHeads: 2, headDim: 64 },
      { heads: 8, kvHeads: 2, headDim: 128 },
      { heads: 7, kvHeads: 1, headDim: 80 },
      { heads: 14, kvHeads: 2, headDim: 64 },
      { heads: 3, kvHeads: 1, headDim: 13 },
      { heads: 4, kvHeads: 1, headDim: 128, window: 70 },
      { heads: 14, kvHeads: 2, headDim: 64, window: 9 },
      { heads: 7, kvHeads: 1, headDim: 33, window: 64 },
    ])(
      'gives the bits of attention: $heads heads, $kvHeads KV heads of $headDim, window $window',
      async ({ window, ...shape }) => {
        const length = 200;
        const one = { ...shape, rows: [{ length, queries: length }], ...(window && { window }) };
        const values = valuesOf(one, dtype, 4);
        const wide = width(shape.heads, shape);
        const tensor = (x: Float32Array) => device.tensor(x, [length, x.length / length], dtype);
        const whole = attention(tensor(values.q), tensor(values.k), tensor(values.v), {
          headDim: shape.headDim,
          cuSeqlens: device.tensor(Int32Array.of(0, length)),
          window,
        });
        const want = await whole.readFloats();
        const cache = new Cache(device, one, dtype);
        cache.write(values, dtype);
        // Every chunking of the sequence reads the same cache, with all rows of a chunking in one call.
        for (const counts of [
          new Array<number>(length).fill(1),
          [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 10],
          [63, 1, 64, 1, 71],
          [130, 70],
          [length],
        ]) {
          const queryOffsets = offsets(counts);
          const o = attentionPaged(tensor(values.q), cache.tensor, {
            headDim: shape.headDim,
            queryOffsets: device.tensor(queryOffsets),
            pages: cache.table(
              counts.map((n, r) =>
                cache.pages[0]!.map((page, i) => {
                  const first = window ? Math.max(0, queryOffsets[r + 1]! - n - window + 1) : 0;
                  return (i + 1) * PAGE_TOKENS > first && i * PAGE_TOKENS < queryOffsets[r + 1]! ? page : -1;
                }),
              ),
            ),
            lengths: device.tensor(queryOffsets.slice(1)),
            window,
          });
          const got = await o.readFloats();
          const differs = got.findIndex((x, i) => !Object.is(x, want[i]));
          expect(differs < 0 ? 'nowhere' : `at token ${Math.floor(differs / wide)}`).toBe('nowhere');
        }
      },
    );

    it('gives the same bits at any thread count', async () => {
      const c = cases['decoding rows beside a prompt']!;
      const values = valuesOf(c, dtype);
      const all = await run(device, c, values, dtype);
      for (const threads of onGpu(isa) ? [1] : [1, 3, 5]) {
        const other = openTest(isa, { threads });
        expect(await run(other, c, values, dtype)).toEqual(all);
        other.dispose();
      }
    });

    it.each([0, 50])(
      'gives the same bits for rows that share a prefix and rows with copies of it (window %i)',
      async (window) => {
        const shape = { heads: 7, kvHeads: 1, headDim: 40 };
        const rows = [150, 130, 129, 200, 200, 70].map((length) => ({
          length,
          queries: length === 130 ? 2 : 1,
        }));
        const c: Case = { ...shape, rows };
        const values = valuesOf(c, dtype);
        // The first two pages of every row are those of the first row; rows 3 and 4 share a third.
        const keys = (x: Float32Array) => {
          const copy = x.slice();
          let at = 0;
          for (const [r, { length }] of rows.entries()) {
            const from = r === 4 ? at - 200 * 40 : 0;
            const common = (r === 4 ? 192 : Math.min(length, 128)) * 40;
            copy.copyWithin(at, from, from + common);
            at += length * 40;
          }
          return copy;
        };
        const common = { ...values, k: keys(values.k), v: keys(values.v) };
        const cache = new Cache(device, c, dtype);
        cache.write(common, dtype);
        const counts = rows.map(({ queries }) => queries);
        const ask = async (pages: readonly (readonly number[])[]) =>
          attentionPaged(device.tensor(common.q, [total(counts), 7 * 40], dtype), cache.tensor, {
            headDim: 40,
            queryOffsets: device.tensor(offsets(counts)),
            pages: cache.table(pages),
            lengths: device.tensor(Int32Array.from(rows, ({ length }) => length)),
            window,
          }).readFloats();
        const [first, second] = cache.pages[0] as [number, number];
        const third = cache.pages[3]![2]!;
        const shared = cache.pages.map((pages, r) =>
          pages.map((page, i) =>
            i * PAGE_TOKENS + 64 > rows[r]!.length
              ? page
              : i < 2
                ? [first, second][i]!
                : r === 4 && i === 2
                  ? third
                  : page,
          ),
        );
        expect(await ask(shared)).toEqual(await ask(cache.pages));
      },
    );

    it('reads a copied page like the original, and a write changes only one of them', async () => {
      const c: Case = { rows: [{ length: 40, queries: 1 }], heads: 2, kvHeads: 1, headDim: 20 };
      const values = valuesOf(c, dtype);
      const cache = device.zeros([5, pageElements(1, 20)], dtype);
      const row = (x: Float32Array, heads: number, from: number, to: number) =>
        device.tensor(x.slice(from * heads * 20, to * heads * 20), [to - from, heads * 20], dtype);
      const slots = (page: number, from: number, to: number) =>
        device.tensor(Int32Array.from({ length: to - from }, (_, i) => page * PAGE_TOKENS + from + i));
      cacheWrite(row(values.k, 1, 0, 39), row(values.v, 1, 0, 39), cache, {
        slots: slots(0, 0, 39),
        headDim: 20,
      });
      // Copies run in order: page 2 gets page 0 through page 3.
      cacheCopy(cache, device.tensor(Int32Array.of(0, 3)), device.tensor(Int32Array.of(3, 2)));
      cacheWrite(row(values.k, 1, 39, 40), row(values.v, 1, 39, 40), cache, {
        slots: slots(2, 39, 40),
        headDim: 20,
      });
      const ask = async (page: number) =>
        attentionPaged(row(values.q, 2, 0, 1), cache, {
          headDim: 20,
          queryOffsets: device.tensor(Int32Array.of(0, 1)),
          pages: device.tensor(Int32Array.of(page), [1, 1]),
          lengths: device.tensor(Int32Array.of(40)),
        }).readFloats();
      const before = await ask(0);
      const copied = await ask(2);
      expect(await ask(3)).toEqual(before);
      expect(copied).not.toEqual(before);
      expect(copied).toEqual(await run(device, c, values, dtype));
    });
  });

  it.each([
    ['f32', 20],
    ['bf16', 20],
    ['bf16', 64],
    ['f32', 2],
  ] as const)('rotates keys on their way as rope does: %s, heads of %i', async (dtype, headDim) => {
    const half = headDim / 2;
    const [T, kvHeads, positions] = [19, 2, 100];
    const tensor = (seed: number) =>
      device.tensor(random(T * kvHeads * headDim, seed), [T, kvHeads * headDim], dtype);
    const [k, v] = [tensor(1), tensor(2)];
    const rotary = {
      cos: device.tensor(random(positions * half, 3), [positions, half]),
      sin: device.tensor(random(positions * half, 4), [positions, half]),
      positions: device.tensor(Int32Array.from({ length: T }, (_, t) => (t * 37) % positions)),
    };
    const slots = device.tensor(Int32Array.from({ length: T }, (_, t) => (t === 5 ? -1 : t * 3)));
    const cache = () => device.zeros([1, pageElements(kvHeads, headDim)], dtype);
    const [apart, fused] = [cache(), cache()];
    cacheWrite(rope(k, headDim, rotary), v, apart, { slots, headDim });
    cacheWrite(k, v, fused, { slots, headDim, rotary });
    const expected = await apart.readFloats();
    expect(expected.some((x) => x !== 0)).toBe(true);
    expect(await fused.readFloats()).toEqual(expected);
  });

  describe.each([
    ['f32', 20],
    ['bf16', 20],
    ['bf16', 64],
    ['f32', 2],
    ['bf16', 256],
  ] as const)('rotates queries beside the keys: %s, heads of %i', (dtype, headDim) => {
    const half = headDim / 2;
    const [T, heads, kvHeads, positions, eps] = [9, 6, 2, 50, 1e-6];
    const x = stored(random(T * heads * headDim, 1), dtype);
    const weights = [random(headDim, 5), random(headDim, 6)].map((w) => stored(w, 'bf16'));
    const tables = [random(positions * half, 3), random(positions * half, 4)];
    const place = (t: number) => (t * 37) % positions;
    /** The queries and the cache that come of `write`. */
    const written = async (write: (on: Parameters<typeof rotateWrite>) => Tensor | undefined) => {
      const of = (count: number, seed: number) =>
        device.tensor(random(T * count * headDim, seed), [T, count * headDim], dtype);
      const [cos, sin] = tables.map((values) => device.tensor(values, [positions, half]));
      const rotary = {
        cos: cos as Tensor,
        sin: sin as Tensor,
        positions: device.tensor(Int32Array.from({ length: T }, (_, t) => place(t))),
      };
      const [q, k] = weights.map((values, i) => ({
        value: device.tensor(values, [headDim], i === 0 ? 'f32' : 'bf16'),
      }));
      const cache = device.zeros([1, pageElements(kvHeads, headDim)], dtype);
      const slots = device.tensor(Int32Array.from({ length: T }, (_, t) => (t === 5 ? -1 : t * 3)));
      const norms = { q: q as Parameter, k: k as Parameter, eps };
      const queries = device.tensor(x, [T, heads * headDim], dtype);
      const rotated = write([
        queries,
        of(kvHeads, 7),
        of(kvHeads, 8),
        cache,
        { slots, headDim, rotary, norms },
      ]);
      return { rotated: await rotated?.readFloats(), cache: await cache.readFloats() };
    };

    it.each([true, false])('has the bits of rmsnorm (%s), rope and cache_write', async (normed) => {
      const apart = await written(([q, k, v, cache, { slots, rotary, norms }]) => {
        const of = (t: Tensor, weight?: Parameter) =>
          rope(normed && weight ? rmsNorm(t, weight, eps) : t, headDim, rotary);
        cacheWrite(of(k, norms?.k), v, cache, { slots, headDim });
        return of(q, norms?.q);
      });
      const fused = await written(([q, k, v, cache, { norms, ...options }]) =>
        rotateWrite(q, k, v, cache, { ...options, norms: normed ? norms : undefined }),
      );
      expect(apart.cache.some((value) => value !== 0)).toBe(true);
      expect(fused).toEqual(apart);
    });

    it('agrees with the equations in f64', async () => {
      const { rotated } = await written((given) => rotateWrite(...given));
      const [cos, sin] = tables as [Float32Array, Float32Array];
      const expected = Array.from(x, (_, i) => {
        const [d, t] = [i % headDim, Math.floor(i / (heads * headDim))];
        const head = x.subarray(i - d, i - d + headDim);
        const mean = head.reduce((sum, value) => sum + value * value, 0) / headDim;
        const y = (e: number) => ((head[e] as number) / Math.sqrt(mean + eps)) * (weights[0]?.[e] as number);
        const angle = place(t) * half + (d % half);
        const other = d < half ? -y(d + half) : y(d - half);
        return y(d) * (cos[angle] as number) + other * (sin[angle] as number);
      });
      // Each of up to three numbers is rounded to storage.
      const largest = Math.max(...expected.map(Math.abs));
      const tolerance = largest * (dtype === 'bf16' ? 3 * 2 ** -8 : 2 ** -20);
      expect(maxDifference(rotated as Float32Array, Float32Array.from(expected))).toBeLessThan(tolerance);
    });

    it('is one launch', async () => {
      await device.synchronize();
      const before = device.stats().launches;
      await written((given) => rotateWrite(...given));
      // One more fills the cache with zeros.
      expect(device.stats().launches - before).toBe(2);
    });
  });

  it.each([
    [{ positions: [0, 9] }, 'cache_write: positions[1] is 9, outside 0..8'],
    [{ half: 3 }, 'cache_write: head size 8 needs tables of width 4 with two halves, got 3'],
    [{ sin: undefined }, 'cache_write: cos, sin and positions come together'],
    [{ q: true }, 'cache_write: q comes with cos, sin, positions and rotated, q_weight with q'],
  ])(
    'refuses %j',
    async (change: { positions?: number[]; half?: number; sin?: undefined; q?: boolean }, message) => {
      const other = openTest(isa);
      const k = other.zeros([2, 1, 8]);
      const table = other.zeros([9, change.half ?? 4]);
      other.ops.cache_write({
        k,
        v: k,
        q: change.q ? k : undefined,
        slots: other.tensor(Int32Array.of(0, 1)),
        cache: other.zeros([1, pageElements(1, 8)]),
        cos: table,
        sin: 'sin' in change ? undefined : table,
        positions: other.tensor(Int32Array.from(change.positions ?? [0, 1])),
      });
      await expect(other.synchronize()).rejects.toThrow(message);
      other.dispose();
    },
  );

  it('writes nothing to slot −1, and returns 0 for a row of length 0', async () => {
    const cache = device.zeros([1, pageElements(1, 8)]);
    const k = device.tensor(random(16), [2, 8]);
    cacheWrite(k, k, cache, { slots: device.tensor(Int32Array.of(-1, -1)), headDim: 8 });
    expect(maxDifference(await cache.readFloats(), new Float32Array(cache.shape[1] as number))).toBe(0);
    const o = attentionPaged(k, cache, {
      headDim: 8,
      queryOffsets: device.tensor(Int32Array.of(0, 1, 2)),
      pages: device.tensor(Int32Array.of(-1, -1), [2, 1]),
      lengths: device.tensor(Int32Array.of(0, 0)),
    });
    expect(await o.readFloats()).toEqual(new Float32Array(16));
  });

  it('is one launch, and accepts 0 tokens', async () => {
    const before = device.stats().launches;
    const cache = device.empty([2, pageElements(1, 8)]);
    const none = device.empty([0, 8]);
    const empty = device.tensor(new Int32Array(0));
    cacheWrite(none, none, cache, { slots: empty, headDim: 8 });
    cacheCopy(cache, empty, empty);
    const o = attentionPaged(none, cache, {
      headDim: 8,
      queryOffsets: device.tensor(Int32Array.of(0)),
      pages: device.empty([0, 1], 'i32'),
      lengths: empty,
    });
    expect(await o.readFloats()).toHaveLength(0);
    expect(device.stats().launches - before).toBe(onGpu(isa) ? 0 : 3);
  });

  describe('refuses', () => {
    /** The error of a call with one row of 3 queries and length 70, over a cache of 4 pages, after a change. */
    interface Change {
      slots?: number[];
      offsets?: number[];
      pages?: number[];
      lengths?: number[];
      copies?: [number, number];
      elements?: number;
      heads?: number;
    }
    const refusal = async (change: Change) => {
      const other = openTest(isa);
      const { heads = 2, elements = pageElements(1, 8) } = change;
      const int = (values: number[]) => other.tensor(Int32Array.from(values));
      const made = async () => {
        const cache = other.zeros([4, elements]);
        const k = other.tensor(random(16), [2, 8]);
        if (change.slots) cacheWrite(k, k, cache, { slots: int(change.slots), headDim: 8 });
        if (change.copies) cacheCopy(cache, int([change.copies[0]]), int([change.copies[1]]));
        attentionPaged(other.tensor(random(3 * heads * 8), [3, heads * 8]), cache, {
          headDim: 8,
          queryOffsets: int(change.offsets ?? [0, 3]),
          pages: int(change.pages ?? [0, 1]).reshape([1, 2]),
          lengths: int(change.lengths ?? [70]),
        });
        await other.synchronize();
      };
      const message = await made().then(
        () => 'nothing',
        (error: Error) => error.message,
      );
      other.dispose();
      return message;
    };

    it.each<[Change, string]>([
      [{}, 'nothing'],
      [{ slots: [0, 256] }, 'cache_write: slots[1] is 256, outside -1..255'],
      [{ slots: [-2, 0] }, 'cache_write: slots[0] is -2, outside -1..255'],
      [{ copies: [4, 0] }, 'cache_copy: from[0] is 4, outside 0..3'],
      [{ copies: [0, -1] }, 'cache_copy: to[0] is -1, outside 0..3'],
      [{ offsets: [1, 3] }, 'attention_paged: query_offsets[0] is 1, expected 0'],
      [{ offsets: [0, 2] }, 'attention_paged: query_offsets ends at 2, expected 3'],
      [{ offsets: [0, -1] }, 'attention_paged: query_offsets[1] is -1, below the 0 before it'],
      [{ pages: [0, 4] }, 'attention_paged: pages[0, 1] is 4, outside 0..3'],
      [{ pages: [-1, 0] }, 'attention_paged: pages[0, 0] is -1, outside 0..3'],
      [{ lengths: [129] }, 'attention_paged: lengths[0] is 129, outside 0..128'],
      [{ lengths: [-1] }, 'attention_paged: lengths[0] is -1, outside 0..128'],
      [{ lengths: [2] }, "attention_paged: lengths[0] is 2, below the row's 3 queries"],
      [{ elements: 2050 }, 'attention_paged: a page holds 2048 elements for each KV head of size 8'],
      [{ elements: 4096, heads: 3 }, 'attention_paged: 3 query heads cannot share 2 KV heads evenly'],
      [{ elements: 4096, slots: [0, 1] }, "cache_write: k has 1 heads, the cache's pages hold 2"],
    ])('%j: %s', async (change, message) => {
      expect(await refusal(change)).toContain(message);
    });
  });
});
