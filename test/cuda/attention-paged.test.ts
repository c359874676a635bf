import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attentionPaged, cacheWrite, PAGE_TOKENS, pageElements } from '../../src/ops/cache.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { gpus, skipped } from './gpu.js';

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly window?: number;
}

/** Queries of a sequence: those of tokens from … to − 1, in one row. */
type Row = readonly [sequence: number, from: number, to: number];

const shapes: readonly Shape[] = [
  { heads: 7, kvHeads: 1, headDim: 64 },
  { heads: 4, kvHeads: 2, headDim: 128, window: 70 },
  { heads: 20, kvHeads: 1, headDim: 40, window: 600 },
  { heads: 3, kvHeads: 3, headDim: 16 },
];

/** Past two splits of 512 keys, to the end of one, and within one. */
const lengths = [1090, 512, 70] as const;

describe.skipIf(gpus.length === 0)(`attention_paged on cuda:0${skipped}`, () => {
  let gpu: Device;
  beforeAll(() => {
    gpu = openDevice('cuda:0');
  });
  afterAll(() => gpu.dispose());

  /** Sequences in a cache on `device`, what has not been written NaN, and a way to ask for rows of them. */
  function asking(device: Device, { heads, kvHeads, headDim, window }: Shape, broken?: number) {
    const counts = lengths.map((length) => Math.ceil(length / PAGE_TOKENS));
    const pages = counts.map((count, s) => Array.from({ length: count }, (_, i) => 3 * i + s));
    const held = 3 * Math.max(...counts);
    const cache = device.empty([held, pageElements(kvHeads, headDim)], 'bf16');
    device.ops.fill({ x: cache, value: Number.NaN });
    const of = (s: number, n: number, seed: number) =>
      s === broken
        ? new Float32Array(lengths[s]! * n * headDim).fill(Number.NaN)
        : stored(
            random(lengths[s]! * n * headDim, 10 * s + seed).map((x) => 2 * x),
            'bf16',
          );
    for (const [s, length] of lengths.entries()) {
      const slots = Int32Array.from(
        { length },
        (_, t) => pages[s]![Math.floor(t / PAGE_TOKENS)]! * PAGE_TOKENS + (t % PAGE_TOKENS),
      );
      const tensor = (x: Float32Array) => device.tensor(x, [length, kvHeads * headDim], 'bf16');
      cacheWrite(tensor(of(s, kvHeads, 1)), tensor(of(s, kvHeads, 2)), cache, {
        slots: device.tensor(slots),
        headDim,
      });
    }
    const queries = lengths.map((_, s) => of(s, heads, 3));
    const wide = heads * headDim;
    /** o of each row. */
    return async (rows: readonly Row[]): Promise<Float32Array[]> => {
      const offsets = [0];
      for (const [, from, to] of rows) offsets.push(offsets.at(-1)! + to - from);
      const q = new Float32Array(offsets.at(-1)! * wide);
      rows.forEach(([s, from, to], r) => {
        q.set(queries[s]!.subarray(from * wide, to * wide), offsets[r]! * wide);
      });
      const width = Math.max(1, ...rows.map(([, , to]) => Math.ceil(to / PAGE_TOKENS)));
      const table = rows.flatMap(([s, from, to]) =>
        Array.from({ length: width }, (_, i) => {
          const first = window ? Math.max(0, from - window + 1) : 0;
          return i * PAGE_TOKENS < to && (i + 1) * PAGE_TOKENS > first && to > 0 ? pages[s]![i]! : -1;
        }),
      );
      const o = attentionPaged(device.tensor(q, [offsets.at(-1)!, wide], 'bf16'), cache, {
        headDim,
        window,
        queryOffsets: device.tensor(Int32Array.from(offsets)),
        pages: device.tensor(Int32Array.from(table), [rows.length, width]),
        lengths: device.tensor(Int32Array.from(rows, ([, , to]) => to)),
      });
      const read = await o.readFloats();
      o.dispose();
      return rows.map((_, r) => read.slice(offsets[r]! * wide, offsets[r + 1]! * wide));
    };
  }

  it.each(shapes)('agrees with the CPU: %j', async (shape) => {
    const rows: readonly Row[] = [
      [0, 1089, 1090],
      [1, 500, 512],
      [2, 40, 70],
      [0, 1020, 1030],
      [2, 0, 0],
      [1, 0, 3],
    ];
    const cpu = openDevice('cpu');
    const [got, want] = [await asking(gpu, shape)(rows), await asking(cpu, shape)(rows)];
    cpu.dispose();
    for (const [r, o] of got.entries()) {
      expect(o.every(Number.isFinite)).toBe(true);
      expect(maxDifference(o, want[r]!), `row ${r}`).toBeLessThan(2 ** -6);
    }
  });

  it.each(shapes)('gives a token the same bits in any chunk and beside any neighbour: %j', async (shape) => {
    const ask = asking(gpu, shape);
    const wide = shape.heads * shape.headDim;
    const [whole] = await ask([[0, 1010, 1060]]);
    const token = (o: Float32Array, at: number) => o.slice(at * wide, (at + 1) * wide);
    const chunks = await ask([
      [2, 3, 70],
      [0, 1010, 1011],
      [0, 1011, 1020],
      [1, 511, 512],
      [0, 1020, 1053],
      [2, 0, 0],
      [0, 1053, 1060],
    ]);
    const joined = [1, 2, 4, 6].flatMap((r) => Array.from(chunks[r]!));
    expect(Float32Array.from(joined)).toEqual(whole);
    for (const at of [0, 7, 49])
      expect((await ask([[0, 1010 + at, 1011 + at]]))[0]).toEqual(token(whole!, at));
  });

  it('leaves rows alone whose neighbours are not numbers', async () => {
    const rows: readonly Row[] = [
      [2, 68, 70],
      [0, 1080, 1083],
      [1, 511, 512],
    ];
    for (const shape of shapes.slice(0, 2)) {
      const want = await asking(gpu, shape)(rows);
      for (const broken of [1, 2]) {
        const got = await asking(gpu, shape, broken)(rows);
        rows.forEach(([s], r) => {
          if (s === broken) expect(got[r]!.every(Number.isNaN)).toBe(true);
          else expect(got[r]).toEqual(want[r]);
        });
      }
    }
  });

  it('combines splits in the same launch', async () => {
    const ask = asking(gpu, shapes[0]!);
    const count = async (rows: readonly Row[]) => {
      await gpu.synchronize();
      const before = gpu.stats().launches;
      await ask(rows);
      return gpu.stats().launches - before;
    };
    const one = await count([[1, 511, 512]]);
    expect(await count([[0, 512, 513]])).toBe(one);
  });
});
