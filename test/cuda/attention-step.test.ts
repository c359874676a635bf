// attention_step on tensor cores: chunks, sections and who computes them. What it shares with other devices is tested in
// test/ops/attention-step.test.ts.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attentionStep, cacheWrite, PAGE_TOKENS, pageElements } from '../../src/ops/cache.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { EMULATED, gpus, skipped } from './gpu.js';

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly window?: number;
}

const shapes: readonly Shape[] = [
  { heads: 7, kvHeads: 1, headDim: 64 },
  { heads: 14, kvHeads: 2, headDim: 128, window: 300 },
  { heads: 20, kvHeads: 1, headDim: 40 },
  { heads: 2, kvHeads: 1, headDim: 24, window: 129 },
];

/** Both sides of the ends of chunks of 128 keys and of a section of 512. */
const LENGTHS = [127, 128, 129, 511, 512, 513, 639, 640, 641, 1];
const POSITIONS = 9000;
/** More than 16 sections, whose factors are found at a time. */
const LONG = [8705, 1];
/** Pages that all rows of more tokens than these share, as rows of one prompt do. */
const SHARED = 1;

describe.skipIf(gpus.length === 0)(`attention_step on cuda:0${skipped}`, () => {
  let gpu: Device;
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-step-'));
  const log = join(folder, 'early');
  beforeAll(() => {
    process.env.STEPTRAIN_EMULATED_EARLY = log;
    gpu = openDevice('cuda:0');
  });
  afterAll(() => {
    delete process.env.STEPTRAIN_EMULATED_EARLY;
    gpu.dispose();
    rmSync(folder, { recursive: true });
  });

  /** o of rows, each given by the number of its length, in this order; `written` is called just before the op. */
  async function step(
    device: Device,
    { heads, kvHeads, headDim, window }: Shape,
    rows: readonly number[],
    width: number,
    lengths: readonly number[] = LENGTHS,
    written = (_cache: Tensor) => {},
    gain = 2,
  ): Promise<Float32Array[]> {
    const counts = lengths.map((length) => Math.ceil(length / PAGE_TOKENS));
    let free = SHARED;
    const tables = counts.map((count) =>
      Array.from({ length: count }, (_, i) => (i < SHARED && count > SHARED ? i : free++)),
    );
    const cache = device.empty([free + 1, pageElements(kvHeads, headDim)], 'bf16');
    device.ops.fill({ x: cache, value: Number.NaN });
    const of = (count: number, size: number, seed: number) =>
      stored(
        random(count * size * headDim, seed).map((x) => gain * x),
        'bf16',
      );
    for (const [r, length] of lengths.entries()) {
      const before = length - 1;
      const slots = Int32Array.from(
        { length: before },
        (_, t) => tables[r]![Math.floor(t / PAGE_TOKENS)]! * PAGE_TOKENS + (t % PAGE_TOKENS),
      );
      // Rows that share pages write the same there.
      const tensor = (seed: number) => {
        const own = of(before, kvHeads, seed + 10 * r);
        own.set(of(Math.min(before, SHARED * PAGE_TOKENS), kvHeads, seed));
        return device.tensor(own, [before, kvHeads * headDim], 'bf16');
      };
      cacheWrite(tensor(1), tensor(2), cache, { slots: device.tensor(slots), headDim });
    }
    const chosen = (size: number, seed: number) => {
      const all = rows.flatMap((r) => Array.from(of(1, size, seed + 10 * r)));
      return device.tensor(Float32Array.from(all), [rows.length, size * headDim], 'bf16');
    };
    const angles = (seed: number) =>
      device.tensor(random((POSITIONS * headDim) / 2, seed), [POSITIONS, headDim / 2]);
    const [q, k, v, cos, sin] = [
      chosen(heads, 3),
      chosen(kvHeads, 4),
      chosen(kvHeads, 5),
      angles(6),
      angles(7),
    ];
    const pages = rows.flatMap((r) => Array.from({ length: width }, (_, i) => tables[r]![i] ?? -1));
    const places = {
      rotary: {
        cos,
        sin,
        positions: device.tensor(Int32Array.from(rows, (r) => (lengths[r] as number) - 1)),
      },
      pages: device.tensor(Int32Array.from(pages), [rows.length, width]),
      lengths: device.tensor(Int32Array.from(rows, (r) => lengths[r] as number)),
    };
    written(cache);
    const o = attentionStep(q, k, v, cache, { headDim, window, ...places });
    const read = await o.readFloats();
    const each = heads * headDim;
    return rows.map((_, i) => read.slice(i * each, (i + 1) * each));
  }

  const all = LENGTHS.map((_, r) => r);
  const widest = Math.max(...LENGTHS.map((length) => Math.ceil(length / PAGE_TOKENS)));

  it.each(shapes)('agrees with the CPU at the ends of chunks and sections: %j', async (shape) => {
    const cpu = openDevice('cpu');
    const [got, want] = [await step(gpu, shape, all, widest), await step(cpu, shape, all, widest)];
    cpu.dispose();
    for (const [r, o] of got.entries()) {
      expect(o.every(Number.isFinite)).toBe(true);
      expect(maxDifference(o, want[r]!), `${LENGTHS[r]} keys`).toBeLessThan(2 ** -5);
    }
  });

  it.each(shapes)('gives a row the same bits in any batch and any table: %j', async (shape) => {
    const alone = await Promise.all(all.map(async (r) => (await step(gpu, shape, [r], widest))[0]));
    // More rows, and wider tables, are divided among blocks in other ways.
    for (const more of gpus[0] === EMULATED ? [0, 40] : [0, 200, 2200]) {
      const rows = [...all, ...Array.from({ length: more }, () => LENGTHS.length - 1)];
      const got = await step(gpu, shape, rows, more > 0 ? widest : 4 * widest);
      for (const r of all) expect(got[r], `${LENGTHS[r]} keys among ${rows.length} rows`).toEqual(alone[r]);
    }
  });

  it('joins more sections than it has factors for at a time', async () => {
    const shape = { heads: 2, kvHeads: 1, headDim: 16 };
    const width = Math.ceil(Math.max(...LONG) / PAGE_TOKENS);
    // Weights so uneven that sums relative to another maximum than the largest would be infinite.
    const ask = (device: Device, rows: readonly number[]) =>
      step(device, shape, rows, width, LONG, () => {}, 24);
    const cpu = openDevice('cpu');
    const [[got], [want]] = [await ask(gpu, [0, 1]), await ask(cpu, [0, 1])];
    cpu.dispose();
    expect(maxDifference(got!, want!)).toBeLessThan(24 * 2 ** -6);
    expect((await ask(gpu, [0]))[0]).toEqual(got);
  });

  it('starts in its turn where it would read what the op in front writes', async () => {
    const shape = shapes[0] as Shape;
    const started = async (written: Parameters<typeof step>[5]) => {
      writeFileSync(log, '');
      const [o] = await step(gpu, shape, [0], widest, LENGTHS, written);
      return { o, count: readFileSync(log, 'utf8').split('\n').length - 1 };
    };
    const page = pageElements(shape.kvHeads, shape.headDim);
    const elsewhere = await started(() => gpu.ops.fill({ x: gpu.empty([8]), value: 1 }));
    // The last page, which no row has.
    const within = await started((cache) => {
      const last = gpu.keep(cache.view(((cache.shape[0] as number) - 1) * page, [page]));
      gpu.ops.fill({ x: last, value: 1 });
      last.dispose();
    });
    expect(within.o).toEqual(elsewhere.o);
    if (gpus[0] !== EMULATED) return;
    const hopper = gpu.info().isa === 'sm_90';
    expect(elsewhere.count).toBe(hopper ? 1 : 0);
    expect(within.count).toBe(0);
  });
});
